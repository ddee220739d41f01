"""How far the experiments are: one line that is rewritten on a terminal, plain
lines now and then elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TextIO

_TERMINAL_PAUSE_S, _PLAIN_PAUSE_S = 0.2, 30.0
_CLEAR = "\r\x1b[K"


def duration(seconds: float) -> str:
    """ "41 s", "3 min 10 s", "2 h 05 min"."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


_PRIOR = 0.1  # share of a plan for which it is believed before measurements


class Pace:
    """Measured over planned time: how wrong plans are, begun at `first` and
    weighed by what was planned so far."""

    def __init__(self, planned_s: float) -> None:
        self._prior_s = max(1.0, _PRIOR * planned_s)
        self._spent_s = self._planned_s = 0.0

    def add(self, seconds: float, planned: float) -> None:
        self._spent_s += seconds
        self._planned_s += planned

    def of(self, first: float = 1.0) -> float:
        whole = self._spent_s + first * self._prior_s
        return max(0.05, whole / (self._planned_s + self._prior_s))


class Overall:
    """All experiments of one command: what is planned, what it really took.
    Shared by their Progress objects."""

    def __init__(self, planned_s: Mapping[str, float]) -> None:
        self.planned_s = dict(planned_s)
        self.done: list[str] = []
        self.measured = Pace(sum(self.planned_s.values()))

    @property
    def pace(self) -> float:
        """Measured over planned time so far, of parts that were not reused."""
        return self.measured.of()

    def others_s(self, current: str) -> float:
        """Seconds that the experiments after the current one will take."""
        left = (
            s for name, s in self.planned_s.items() if name not in self.done and name != current
        )
        return sum(left) * self.pace


class Progress:
    """The progress of one experiment. Not thread-safe; costs nothing when called often."""

    def __init__(
        self,
        name: str,
        overall: Overall | None = None,
        stream: TextIO | None = None,
        quiet: bool = False,
    ) -> None:
        self.name = name
        self.overall = overall or Overall({name: 60.0})
        self.reused_s = self.reused_cpu_s = 0.0  # of parts measured before
        self._stream = stream or sys.stderr
        self._quiet = quiet
        self._terminal = self._stream.isatty()
        self._planned = {name: self.overall.planned_s.get(name, 60.0)}
        self._measured = Pace(sum(self._planned.values()))
        self._finished: set[str] = set()
        self._part, self._share, self._text = "", 0.0, ""
        self._part_began = self._shown = 0.0
        self._first: tuple[float, float] | None = None  # share and time it began with
        self._part_reused = False

    def plan(self, seconds: Mapping[str, float]) -> None:
        """The parts in order and what each is thought to take on two AVX2
        cores. The names are those given to part(), train() and measure()."""
        self._planned = dict(seconds)
        self._measured = Pace(sum(seconds.values()))

    @property
    def pace(self) -> float:
        """This experiment's own pace, which begins at that of all experiments so far."""
        return self._measured.of(self.overall.pace)

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Names the part that the block runs. Parts may nest in name only: the inner wins."""
        outer = (self._part, self._part_began, self._part_reused)
        self._part, self._part_began, self._part_reused = name, time.monotonic(), False
        self._first = None
        self.at(0.0)
        try:
            yield
            self._end(name)
        finally:
            self._part, self._part_began, self._part_reused = outer

    @contextlib.contextmanager
    def parts(self, names: Sequence[str]) -> Iterator[None]:
        """Names several parts that run at once: their planned times are added to one part's."""
        together = " and ".join(names)
        self._planned[together] = sum(self._planned.pop(name, 0.0) for name in names)
        with self.part(together):
            yield

    def at(self, share: float, text: str = "") -> None:
        """The current part is at `share` of 1; `text` tells rate and figures."""
        self._share, self._text = min(max(share, 0.0), 1.0), text
        now = time.monotonic()
        if self._share > 0 and self._first is None:  # what was resumed begins late
            self._first = (self._share, now)
        if now - self._shown < (_TERMINAL_PAUSE_S if self._terminal else _PLAIN_PAUSE_S):
            return
        self._shown = now
        self._write(self._line())

    def note(self, text: str) -> None:
        """A line that stays."""
        if self._quiet:
            return
        self._stream.write((_CLEAR if self._terminal else "") + text + "\n")
        self._stream.flush()

    def reused(self, seconds: float, cpu_seconds: float) -> None:
        """The current part was measured before; its time counts in the result,
        not in the estimate."""
        self.reused_s += seconds
        self.reused_cpu_s += cpu_seconds
        self._part_reused = True

    def left_s(self) -> float:
        """Seconds left of this experiment, as far as it was planned."""
        left = sum(
            s
            for name, s in self._planned.items()
            if name not in self._finished and name != self._part
        )
        now = self._planned.get(self._part, 0.0) * self.pace * (1 - self._share)
        if self._first is not None and self._share > self._first[0] + 0.02:
            # The part's own rate tells more than the plan.
            rate = (self._share - self._first[0]) / (time.monotonic() - self._first[1])
            now = (1 - self._share) / rate
        return left * self.pace + now

    def _end(self, name: str) -> None:
        seconds = time.monotonic() - self._part_began
        self._finished.add(name)
        how = "as measured before" if self._part_reused else f"done in {duration(seconds)}"
        if not self._part_reused:
            began_at = self._first[0] if self._first and self._first[0] > 0.1 else 0.0
            planned = self._planned.get(name, seconds) * (1 - began_at)
            self._measured.add(seconds, planned)
            self.overall.measured.add(seconds, planned)
        self._share = 0.0
        self.note(f"{self.name}: {name}: {how}; {duration(self._all_left())} left")

    def _all_left(self) -> float:
        return self.left_s() + self.overall.others_s(self.name)

    def _line(self) -> str:
        count = len(self.overall.planned_s)
        where = f" ({len(self.overall.done) + 1} of {count})" if count > 1 else ""
        share = f" {100 * self._share:.0f} %" if self._share > 0 else ""
        text = f" {self._text}" if self._text else ""
        left = f"; {duration(self.left_s())} left"
        if count > 1:
            left += f", {duration(self._all_left())} of all"
        return f"{self.name}{where}: {self._part}{share}{text}{left}"

    def _write(self, line: str) -> None:
        if self._quiet:
            return
        if self._terminal:
            self._stream.write(_CLEAR + line[:160])
        else:
            self._stream.write(line + "\n")
        self._stream.flush()

    def clear(self) -> None:
        """Takes the rewritten line away."""
        if self._terminal and not self._quiet:
            self._stream.write(_CLEAR)
            self._stream.flush()
