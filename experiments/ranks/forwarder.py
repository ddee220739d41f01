"""The wire of a simulated network: moves packets between TUN devices of several
network namespaces, at a given rate and after a given delay.

    python -m experiments.ranks.forwarder NODES MTU        (started by network.py)

Every node is a namespace without a name with one device, 10.77.0.<node + 1>: it goes when
the last process in it ends, so that nothing remains, whatever ends this program.
Commands are lines of JSON on stdin: {"latency_s": L, "rate_bit_s": R} sets the network,
{} asks for counters. Each is answered by a line: {"nodes": [[sent bytes, sent packets],
...]}. The first line of output is {"namespaces": [descriptor, ...]}, to be entered by way of
/proc/<pid>/fd, or {"refused": reason}.

A packet leaves its node when those in front of it have left, bytes / rate after it began, and
arrives the delay later. What arrives at a node is not limited: in all that is measured over it
a node receives from one other at a time.
"""

from __future__ import annotations

import collections
import ctypes
import errno
import fcntl
import heapq
import json
import os
import select
import socket
import struct
import sys
import time
from collections.abc import Callable

SUBNET = (10, 77, 0)
DEVICE = "tarn0"
_CLONE_NEWNET = 0x40000000
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_SIOCSIFADDR, _SIOCSIFNETMASK, _SIOCSIFMTU, _SIOCSIFTXQLEN = 0x8916, 0x891C, 0x8922, 0x8943
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_PR_SET_PDEATHSIG, _PR_SET_TIMERSLACK = 1, 29
_QUEUE = 20_000  # packets a device holds before it drops any
_WINDOW = 32 << 20  # bytes of a connection on their way: 10 Gbit/s over 25 ms
_LIBC = ctypes.CDLL(None, use_errno=True)
# Seconds of packets that may wait for a node's sender outside of its device. They are more than
# a turn takes, so that the line does not run dry.
_AHEAD_S, _TURN_S = 0.004, 0.001
# The most packets that one turn reads from a node, so that no node waits long for the others.
_BATCH = 16


def _call(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _device(address: str, mtu: int) -> int:
    """A TUN device in the namespace of this process, up; its descriptor."""
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    name = DEVICE.encode()
    fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH22x", name, _IFF_TUN | _IFF_NO_PI))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:

        def ask(request: int, form: str, *values: object, device: bytes = name) -> None:
            fcntl.ioctl(control, request, struct.pack(f"16s{form}", device, *values))

        for request, word in ((_SIOCSIFADDR, address), (_SIOCSIFNETMASK, "255.255.255.0")):
            ask(request, "HH4s16x", socket.AF_INET, 0, socket.inet_aton(word))
        ask(_SIOCSIFMTU, "i20x", mtu)
        ask(_SIOCSIFTXQLEN, "i20x", _QUEUE)
        for device in (name, b"lo"):
            ask(_SIOCSIFFLAGS, "H22x", _IFF_UP, device=device)
    return tun


def _tune() -> None:
    """Windows of TCP in this namespace: wide from the start, kept while idle."""
    words = {
        "tcp_rmem": f"4096 {_WINDOW} {_WINDOW}",
        "tcp_wmem": f"4096 {_WINDOW} {_WINDOW}",
        "tcp_slow_start_after_idle": "0",
    }
    for name, value in words.items():
        with open(f"/proc/sys/net/ipv4/{name}", "w", encoding="ascii") as file:
            file.write(value)


def make_nodes(count: int, mtu: int) -> tuple[list[int], list[int]]:
    """Namespaces and their devices, descriptors both. OSError where they are refused. The
    process is in the last namespace afterwards."""
    spaces, devices = [], []
    for node in range(count):
        _call(_LIBC.unshare(_CLONE_NEWNET), "network namespaces")
        devices.append(_device(".".join(map(str, (*SUBNET, node + 1))), mtu))
        _tune()
        spaces.append(os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC))
    return spaces, devices


class Wire:
    """Packets on their way. `send(node, packet)` delivers one; the clock is an argument, so
    that a test can do without."""

    def __init__(self, nodes: int, send: Callable[[int, bytes], None]) -> None:
        self.latency_s, self.rate_bit_s = 0.0, 0.0  # 0: no limit
        self.counts = [[0, 0] for _ in range(nodes)]  # sent bytes and packets
        self._free = [0.0] * nodes  # when a node's sender is done
        self._send = send
        self._late: list[tuple[float, int, int, bytes]] = []
        self._sent = 0

    def take(self, node: int, packet: bytes, now: float) -> None:
        """A packet that a node has sent; what is no IPv4 of this network is dropped."""
        target = packet[19] - 1 if len(packet) > 19 and packet[0] >> 4 == 4 else -1
        if not 0 <= target < len(self.counts) or tuple(packet[16:19]) != SUBNET:
            return
        self.counts[node][0] += len(packet)
        self.counts[node][1] += 1
        left = max(now, self._free[node])
        if self.rate_bit_s > 0:
            left += 8 * len(packet) / self.rate_bit_s
            self._free[node] = left
        self._sent += 1
        heapq.heappush(self._late, (left + self.latency_s, self._sent, target, packet))

    def deliver(self, now: float) -> None:
        """Delivers every packet that is due, by its due time and, where times are equal, in the
        order of sending."""
        while self._late and self._late[0][0] <= now:
            _, _, target, packet = heapq.heappop(self._late)
            self._send(target, packet)

    def wait_s(self, now: float) -> float | None:
        """Seconds until the next packet is due; None where none is on its way."""
        return max(0.0, self._late[0][0] - now) if self._late else None

    def busy(self, node: int, now: float) -> bool:
        """Whether so much waits for a node's sender that the rest stays in its device."""
        return self._free[node] - now > _AHEAD_S


def _deliver_to(devices: list[int]) -> Callable[[int, bytes], None]:
    def send(node: int, packet: bytes) -> None:
        try:
            os.write(devices[node], packet)
        except OSError as error:
            if error.errno not in (errno.EIO, errno.ENOBUFS, errno.EAGAIN):
                raise  # a device that is down or full drops, as a switch does

    return send


def _answer(wire: Wire, line: str) -> None:
    """Carries out one command and prints its answer; a broken command ends the program."""
    asked = json.loads(line)
    wire.latency_s = float(asked.get("latency_s", wire.latency_s))
    wire.rate_bit_s = float(asked.get("rate_bit_s", wire.rate_bit_s))
    print(json.dumps({"nodes": wire.counts}), flush=True)


def forward(devices: list[int], stdin: int) -> None:
    """Moves packets until stdin ends."""
    wire = Wire(len(devices), _deliver_to(devices))
    node_of = {device: node for node, device in enumerate(devices)}
    lines: collections.deque[str] = collections.deque()
    rest = b""
    while True:
        now = time.monotonic()
        readable = [one for one, node in node_of.items() if not wire.busy(node, now)]
        wait = wire.wait_s(now)
        if len(readable) < len(devices):
            wait = min(wait if wait is not None else 1.0, _TURN_S)
        for ready in select.select([*readable, stdin], [], [], wait)[0]:
            if ready == stdin:
                got = os.read(stdin, 65536)
                if not got:
                    return
                *whole, rest = (rest + got).split(b"\n")
                lines.extend(one.decode() for one in whole)
                continue
            for _ in range(_BATCH):
                try:
                    packet = os.read(ready, 65536)
                except BlockingIOError:
                    break
                wire.take(node_of[ready], packet, time.monotonic())
                wire.deliver(time.monotonic())
        wire.deliver(time.monotonic())
        while lines:
            _answer(wire, lines.popleft())


def main(nodes: int, mtu: int) -> None:
    """Forwards packets until stdin ends; a parent that is killed ends this process, too."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, 9)
    _LIBC.prctl(_PR_SET_TIMERSLACK, 1)
    try:
        spaces, devices = make_nodes(nodes, mtu)
    except OSError as error:
        print(json.dumps({"refused": str(error)}), flush=True)
        return
    print(json.dumps({"namespaces": spaces}), flush=True)
    forward(devices, sys.stdin.fileno())


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
