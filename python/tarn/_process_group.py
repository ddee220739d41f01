"""Makes the process group of `tarn train`, also where torchrun has started the
processes again.

torchrun's agent keeps one store for all attempts of a job, and processes that are
restarted find in it what their predecessors wrote, including addresses at which no
process listens any more (https://github.com/pytorch/pytorch/issues/135712). The first
rank of an attempt therefore opens its own store and leaves its address with the
agent; an address is of this attempt if that store answers there, since the agents end
every process of an attempt before the next one begins.
"""

from __future__ import annotations

import datetime
import os
import secrets
import socket
import time

import torch.distributed as dist

_ADDRESS, _ATTEMPTS, _AGAIN, _NAME = "tarn/address", "tarn/attempts", "tarn/again", "tarn/name"
_TRY_S, _PAUSE_S = 5.0, 0.05  # for one address, and before it is read again


def join(backend: str, timeout_s: float) -> bool:
    """Calls ``torch.distributed.init_process_group`` for the rank that the environment
    describes. Returns whether torchrun has started these processes again; the same
    on all ranks. RuntimeError where the others are not there in time."""
    timeout = datetime.timedelta(seconds=timeout_s)
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        dist.init_process_group(backend, timeout=timeout)
        return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    host = os.environ["MASTER_ADDR"]
    agent = dist.TCPStore(host, int(os.environ["MASTER_PORT"]), is_master=False, timeout=timeout)
    if rank == 0:
        store = dist.TCPStore(host, 0, is_master=True, timeout=timeout, wait_for_workers=False)
        name = secrets.token_hex(8)
        store.set(_NAME, name)
        store.set(_AGAIN, str(int(agent.add(_ATTEMPTS, 1) > 1)))
        agent.set(_ADDRESS, f"{host} {store.port} {name}")
    else:
        store = _store_of_first(agent, timeout_s)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout)
    return store.get(_AGAIN) == b"1"


def _store_of_first(agent: dist.Store, timeout_s: float) -> dist.Store:
    """What the first rank of this attempt has opened, as soon as it is there."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        host, port, name = agent.get(_ADDRESS).decode().split()
        try:
            # torch's own client would try for seconds, and tell of it at length.
            socket.create_connection((host, int(port)), _TRY_S).close()
            store = dist.TCPStore(
                host, int(port), is_master=False, timeout=datetime.timedelta(seconds=_TRY_S)
            )
            if store.get(_NAME).decode() == name:
                store.set_timeout(datetime.timedelta(seconds=timeout_s))
                return store
        except (OSError, RuntimeError):
            pass  # an address of an earlier attempt: no process listens there, or another program
        time.sleep(_PAUSE_S)
    raise RuntimeError(f"want the first rank within {timeout_s:g} s, got no answer")
