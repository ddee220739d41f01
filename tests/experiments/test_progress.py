"""What is shown while experiments run, with a clock of the test's own."""

import io

import pytest

from experiments.core import progress as module
from experiments.core.progress import Overall, Progress, duration


class Screen(io.StringIO):
    def __init__(self, terminal):
        super().__init__()
        self.terminal = terminal

    def isatty(self):
        return self.terminal


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 1000.0

        def monotonic(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.mark.parametrize(
    "seconds, text",
    [
        (0, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (190, "3 min 10 s"),
        (3600, "1 h 00 min"),
        (7500, "2 h 05 min"),
        (-3, "0 s"),
    ],
)
def test_duration(seconds, text):
    assert duration(seconds) == text


def test_estimate_follows_the_plan_then_what_is_measured(clock):
    overall = Overall({"copy": 300.0, "images": 100.0})
    shown = Progress("copy", overall, Screen(False))
    shown.plan({"a": 100, "b": 200})
    assert shown.left_s() == 300 and overall.others_s("copy") == 100
    with shown.part("a"):
        clock.now += 10
        shown.at(0.01)
        clock.now += 40
        shown.at(0.21)  # 0.2 in 40 s: another 158 s
        assert shown.left_s() == pytest.approx(200 + 158)
        clock.now += 150
        shown.at(1.0)
    # Twice as slow as planned, and so will be the rest, as far as one knows.
    assert overall.pace == pytest.approx((200 + 40) / (100 + 40))
    own = (200 + 30 * overall.pace) / (100 + 30)
    assert shown.left_s() == pytest.approx(200 * own) and 1.8 < own < 2
    assert overall.others_s("copy") == pytest.approx(100 * overall.pace)


def test_resumed_and_reused_parts_do_not_change_the_pace(clock):
    overall = Overall({"copy": 300.0})
    shown = Progress("copy", overall, Screen(False))
    shown.plan({"a": 100, "b": 100, "c": 100})
    with shown.part("a"):
        shown.reused(500.0, 400.0)
    with shown.part("b"):  # went on at four fifths
        shown.at(0.8)
        clock.now += 20
        shown.at(1.0)
    assert overall.pace == pytest.approx(1.0) and shown.left_s() == pytest.approx(100)
    assert (shown.reused_s, shown.reused_cpu_s) == (500.0, 400.0)


def test_plain_lines_now_and_then(clock):
    screen = Screen(False)
    shown = Progress("copy", Overall({"copy": 60.0, "images": 60.0}), screen)
    with shown.part("train linear"):
        for _ in range(1000):
            clock.now += 0.1
            shown.at(0.5, "500/1000 updates, 10/s")
    lines = screen.getvalue().splitlines()
    assert 4 <= len(lines) <= 6 and "\x1b" not in screen.getvalue()
    assert "copy (1 of 2): train linear 50 % 500/1000 updates, 10/s;" in lines[1]
    assert lines[-1].startswith("copy: train linear: done in 1 min 40 s;")


def test_one_line_on_a_terminal(clock):
    screen = Screen(True)
    shown = Progress("copy", stream=screen)
    with shown.part("a"):
        for _ in range(10):
            clock.now += 1
            shown.at(0.5)
    text = screen.getvalue()
    assert text.count("\n") == 1 and text.count("\r\x1b[K") == 12


def test_a_failed_part_is_not_done(clock):
    shown = Progress("copy", quiet=True)
    shown.plan({"a": 10})
    with pytest.raises(ValueError):
        with shown.part("a"):
            raise ValueError
    assert shown.left_s() == 10


def test_quiet_is_quiet():
    screen = Screen(False)
    shown = Progress("copy", stream=screen, quiet=True)
    with shown.part("a"):
        shown.at(0.5)
    shown.note("x")
    assert screen.getvalue() == ""
