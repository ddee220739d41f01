"""The simulated network: what a wire delivers, and, where this machine permits it, what
arrives at nodes and what is left behind. No verdict rests on a clock."""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import pytest

from experiments.core import ExperimentError
from experiments.ranks.forwarder import Wire
from experiments.ranks.network import LEAST_MTU, MOST_MTU, Network, check, mtu_of, refused

ROOT = pathlib.Path(__file__).resolve().parents[2]
REFUSED = refused()
needs_network = pytest.mark.skipif(bool(REFUSED), reason=f"no network: {REFUSED}")


def packet(target, number=0, size=100):
    """IPv4 to a node, with a number at its end."""
    head = bytes([0x45]) + bytes(15) + bytes([10, 77, 0, target + 1])
    return head + bytes(size - 24) + number.to_bytes(4, "big")


class Clock:
    """Runs a wire as fast as it goes: the time is what is said."""

    def __init__(self, nodes=3, latency_s=0.0, rate_bit_s=0.0):
        self.arrived = []
        self.wire = Wire(nodes, lambda node, data: self.arrived.append((self.now, node, data)))
        self.wire.latency_s, self.wire.rate_bit_s = latency_s, rate_bit_s
        self.now = 0.0

    def run(self):
        while (wait := self.wire.wait_s(self.now)) is not None:
            self.now += wait
            self.wire.deliver(self.now)
        return self.arrived


def test_a_packet_arrives_after_its_bytes_and_the_delay():
    clock = Clock(latency_s=0.01, rate_bit_s=8e3)
    clock.wire.take(0, packet(1), 0.0)  # 100 bytes at 1,000 a second
    clock.wire.take(0, packet(2), 0.0)
    assert [(round(when, 9), node) for when, node, _ in clock.run()] == [(0.11, 1), (0.21, 2)]
    assert clock.wire.counts == [[200, 2], [0, 0], [0, 0]]


def test_senders_do_not_wait_for_each_other():
    clock = Clock(rate_bit_s=8e3)
    clock.wire.take(0, packet(2), 0.0)
    clock.wire.take(1, packet(2), 0.0)
    assert [when for when, *_ in clock.run()] == [0.1, 0.1]


def test_order_is_kept():
    clock = Clock(latency_s=0.5)
    for number in range(50):
        clock.wire.take(0, packet(1, number), 0.0)
    assert [int.from_bytes(data[-4:], "big") for *_, data in clock.run()] == list(range(50))


def test_a_sender_with_much_to_send_is_busy():
    clock = Clock(rate_bit_s=8e3)
    assert not clock.wire.busy(0, 0.0)
    clock.wire.take(0, packet(1), 0.0)
    assert clock.wire.busy(0, 0.0) and not clock.wire.busy(0, 0.1) and not clock.wire.busy(1, 0.0)


@pytest.mark.parametrize(
    "stray",
    [b"", b"\x45", bytes(40), b"\x60" + bytes(39), packet(3), packet(0)[:16] + bytes([8, 8, 8, 8])],
)
def test_what_is_not_of_the_network_is_dropped(stray):
    clock = Clock()
    clock.wire.take(0, stray, 0.0)
    assert clock.run() == [] and clock.wire.counts[0] == [0, 0]


@pytest.mark.parametrize(
    "asked",
    [
        (1, 0, 0),
        (65, 0, 0),
        (2, -1e-3, 0),
        (2, 1.5, 0),
        (2, float("nan"), 0),
        (2, 0, -1),
        (2, 0, 10),
        (2, 0, 1e13),
        (2, 0, float("nan")),
    ],
)
def test_refused_networks(asked):
    with pytest.raises(ExperimentError, match="network: .*want .* got ") as raised:
        check(*asked)
    assert raised.value.code == 2
    with pytest.raises(ExperimentError):
        Network(*asked)


def test_packets_fit_the_rate():
    assert [mtu_of(rate) for rate in (0, 1e7, 1e8, 1e9, 1e11)] == [
        MOST_MTU,
        LEAST_MTU,
        6250,
        62_500,
        MOST_MTU,
    ]


# --- On this machine --------------------------------------------------------------


def forked(network, node, work):
    """Runs `work` in a child at a node; its exit code."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            network.join(node)
            work()
            code = 0
        finally:
            os._exit(code)
    return pid


def ended(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@needs_network
@pytest.mark.parametrize("asked", [(0.0, 0.0), (0.002, 1e9)])
def test_bytes_arrive_complete_and_in_order(asked):
    data = os.urandom(300_000)
    with Network(2, *asked) as network:

        def listen():
            with socket.create_server((network.address(0), 5000)) as server:
                one, _ = server.accept()
                got = b""
                while len(got) < len(data):
                    more = one.recv(1 << 16)
                    assert more
                    got += more
                assert got == data
                one.sendall(b"!")

        def send():
            for _ in range(200):  # until the other listens
                try:
                    one = socket.create_connection((network.address(0), 5000), 20)
                    break
                except ConnectionRefusedError:
                    time.sleep(0.05)
            with one:
                one.sendall(data)
                assert one.recv(1) == b"!"

        pids = [forked(network, 0, listen), forked(network, 1, send)]
        assert [ended(pid) for pid in pids] == [0, 0]
        received, sent = network.sent()
        assert sent >= len(data) > received > 0


@needs_network
def test_nodes_see_the_network_alone():
    def devices():
        assert sorted(name for _, name in socket.if_nameindex()) == ["lo", "tarn0"]

    with Network(2) as network:
        assert ended(forked(network, 1, devices)) == 0
    assert "tarn0" not in [name for _, name in socket.if_nameindex()]


def spaces_of(pid):
    """Network namespaces that a process holds open."""
    found = set()
    for one in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(one)
        except OSError:
            continue
        if target.startswith("net:"):
            found.add(target)
    return found


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


@needs_network
def test_nothing_is_left_behind():
    before = os.listdir("/proc/self/fd")
    with Network(3) as network:
        pid = network._process.pid
        assert len(spaces_of(pid)) == 3
    assert not alive(pid) and len(os.listdir("/proc/self/fd")) == len(before)


@needs_network
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_leaves_nothing_behind(number):
    """Also not one that the program cannot see."""
    code = (
        "import time\nfrom experiments.ranks.network import Network\n"
        "with Network(2) as n:\n    print(n._process.pid, flush=True)\n    time.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    pid = int(process.stdout.readline())
    process.send_signal(number)
    process.wait(30)
    process.stdout.close()
    for _ in range(200):
        if not alive(pid):
            break
        time.sleep(0.05)
    assert not alive(pid)


def test_a_machine_that_refuses_says_so(monkeypatch):
    """In one line, whatever it was."""
    monkeypatch.setattr("experiments.ranks.network.sys.executable", "/bin/false")
    assert refused() == "the forwarder has ended"
