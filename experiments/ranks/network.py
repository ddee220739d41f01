"""A network of several nodes on this machine, for as long as a `with` lasts: a namespace a
node, and between them a program that delays packets (forwarder.py). `tc netem` would do
the same inside the kernel, where a kernel has it; this needs namespaces and TUN alone."""

from __future__ import annotations

import ctypes
import json
import os
import pathlib
import subprocess
import sys
from types import TracebackType

from experiments.core import ExperimentError, JsonDict
from experiments.ranks.forwarder import SUBNET

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_CLONE_NEWNET = 0x40000000
_LIBC = ctypes.CDLL(None, use_errno=True)
MOST_NODES = 64
LEAST_MTU, MOST_MTU = 1500, 65_000
# A packet occupies its sender for as long at most. Long packets change nothing about when a
# message has arrived, over one line, and each of them costs the forwarder the same.
_PACKET_S = 500e-6


def mtu_of(rate_bit_s: float) -> int:
    """Bytes of a packet at this rate, 0 for no limit: as many as leave in half a millisecond,
    within what Ethernet and a device allow."""
    if rate_bit_s <= 0:
        return MOST_MTU
    return int(min(MOST_MTU, max(LEAST_MTU, rate_bit_s / 8 * _PACKET_S)))


def check(nodes: int, latency_s: float, rate_bit_s: float) -> None:
    """ExperimentError (2) where no such network can be asked for."""
    if not 2 <= nodes <= MOST_NODES:
        raise ExperimentError(f"network: nodes: want 2 to {MOST_NODES}, got {nodes}", 2)
    if not 0 <= latency_s <= 1:
        raise ExperimentError(f"network: latency: want 0 to 1 second, got {latency_s:g}", 2)
    if rate_bit_s != 0 and not 1e6 <= rate_bit_s <= 1e12:
        raise ExperimentError(
            f"network: rate: want 0 (no limit) or 1e6 to 1e12 bit/s, got {rate_bit_s:g}", 2
        )


class Network:
    """`nodes` machines that see each other alone. Every packet takes latency_s, one way, and
    leaves its node at rate_bit_s (0: as fast as it goes). ExperimentError where this machine
    refuses it. Ends with the `with`, with this process, and with Ctrl-C."""

    def __init__(self, nodes: int, latency_s: float = 0.0, rate_bit_s: float = 0.0) -> None:
        check(nodes, latency_s, rate_bit_s)
        self.nodes = nodes
        self._asked = {"latency_s": latency_s, "rate_bit_s": rate_bit_s}
        self._mtu = mtu_of(rate_bit_s)
        self._process: subprocess.Popen[str] | None = None
        self._spaces: list[int] = []

    def __enter__(self) -> Network:
        # A separate session: Ctrl-C of a terminal reaches the ranks, and this closes stdin.
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-B",
                "-m",
                "experiments.ranks.forwarder",
                str(self.nodes),
                str(self._mtu),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=dict(os.environ, PYTHONPATH=str(_ROOT)),
        )
        try:
            told = self._line()
            if "refused" in told:
                raise ExperimentError(f"network: {told['refused']}")
            self._spaces = list(told["namespaces"])
            self._ask(self._asked)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """The forwarder ends, and with it and the ranks everything of the network."""
        if self._process is None:
            return
        process, self._process = self._process, None
        assert process.stdin is not None and process.stdout is not None
        process.kill()
        process.stdin.close()
        process.stdout.close()
        process.wait()

    def address(self, node: int) -> str:
        """IPv4 address of a node."""
        return ".".join(map(str, (*SUBNET, node + 1)))

    def join(self, node: int) -> None:
        """Moves this process (a fresh child) to a node. OSError where it is refused."""
        assert self._process is not None
        with open(f"/proc/{self._process.pid}/fd/{self._spaces[node]}", "rb") as space:
            if _LIBC.setns(space.fileno(), _CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")

    def sent(self) -> list[int]:
        """Bytes each node has sent so far, with the headers of IP and TCP (40 to 60 bytes a
        packet) and what TCP acknowledges."""
        return [bytes_ for bytes_, _ in self._ask({})["nodes"]]

    def _ask(self, command: JsonDict) -> JsonDict:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return self._line()

    def _line(self) -> JsonDict:
        assert self._process is not None and self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ExperimentError("network: the forwarder has ended")
        return json.loads(line)


def refused() -> str:
    """Why there can be no such network here, for people; empty where there can."""
    try:
        with Network(2):
            return ""
    except ExperimentError as error:
        return str(error).removeprefix("network: ")
