"""The command line of `tarn experiment`."""

from __future__ import annotations

import argparse
import os
import pathlib
import shlex
import signal
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import plotting
from experiments import registry
from experiments.core import data, machine, places, result
from experiments.core.progress import duration
from experiments.core.runner import run_all
from experiments.core.settings import Settings
from experiments.core.types import ATTENTION_FLAG, DEVICES, FAMILIES, SIZES, ExperimentError

_PROGRAM = "tarn experiment"
_KINDS = (*ATTENTION_FLAG, "lstm", *FAMILIES)
_EXAMPLES = """\
examples:
  tarn experiment list                           which results are current, what would run and why
  tarn experiment copy                           one experiment at the size of two CPU cores
  tarn experiment scaling --attention linear     one variant only
  tarn experiment images --data cifar10=DIR --size full --device cuda
  tarn experiment all --size quick --out smoke   a smoke test of everything
  tarn experiment report                         write docs/paper from the results
  tarn experiment report --redraw                the same, using only docs/paper/results

Results, models and measured points stay in the --out folder: a stopped run continues
where it was, and current results are not measured again. Exit codes: 0 done, 1 failure,
2 wrong usage, 3 missing or bad data, 130 interrupted."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        print(f"{_PROGRAM}: error: {message}\nSee `{_PROGRAM} --help`.", file=sys.stderr)
        sys.exit(2)

    def print_help(self, file: Any = None) -> None:
        # argparse hides a write that fails.
        print(self.format_help(), end="", file=file, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=_PROGRAM,
        description="Runs the paper's experiments on this machine and writes the report on them.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    known = list(registry.MODULES)
    parser.add_argument(
        "what",
        choices=[*known, "all", "list", "report"],
        metavar="WHAT",
        help=f"{', '.join(known)}; all (those of `make paper`); list; report",
    )
    parser.add_argument(
        "--size",
        choices=SIZES,
        default="cpu",
        help="quick: a smoke test; cpu: minutes on two cores; full: the paper's size (default cpu)",
    )
    parser.add_argument(
        "--attention",
        default="",
        metavar="KIND[,KIND]",
        help=f"run only these variants, out of {', '.join(_KINDS)}",
    )
    parser.add_argument("--seed", type=_seed, default=0, metavar="N", help="seed (default 0)")
    parser.add_argument(
        "--threads",
        type=_threads,
        default=0,
        metavar="N",
        help="threads (default: all that the process may use)",
    )
    parser.add_argument(
        "--device",
        choices=DEVICES,
        default="cpu",
        help="device of trainings and operators (default cpu); the runtime generates on the CPU",
    )
    parser.add_argument(
        "--data",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help=f"path of a data set, repeatable; names: {', '.join(data.SETS)}. "
        "Defaults: $TARN_DATA/NAME, ../shared/data/NAME next to the "
        "checkout, Debian's package",
    )
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        metavar="DIR",
        help="work folder (default models/paper/SIZE; with --attention, --seed "
        "or --device, a folder named after them)",
    )
    parser.add_argument("--force", action="store_true", help="measure everything again")
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    parser.add_argument(
        "--to",
        type=pathlib.Path,
        default=None,
        metavar="DIR",
        help="report: output folder (default docs/paper; docs/paper-cuda with --device cuda)",
    )
    parser.add_argument(
        "--redraw", action="store_true", help="report: use the results in the output folder"
    )
    return parser


def _seed(text: str) -> int:
    return _whole(text, 0, 2**63 - 1)


def _threads(text: str) -> int:
    return _whole(text, 1, 1024)


def _whole(text: str, least: int, most: int) -> int:
    if not text.isascii() or not text.isdigit() or not least <= int(text[:20]) <= most:
        raise argparse.ArgumentTypeError(
            f"want a whole number from {least} to {most}, got {text!r}"
        )
    return int(text)


def _data_paths(given: Sequence[str]) -> dict[str, pathlib.Path]:
    paths = {}
    for one in given:
        name, equals, path = one.partition("=")
        if not equals or not path or name not in data.SETS:
            raise ExperimentError(
                f"--data: want NAME=PATH with NAME one of {', '.join(data.SETS)}, got {one!r}", 2
            )
        paths[name] = pathlib.Path(path)
    return paths


def _attention(text: str) -> tuple[str, ...]:
    kinds = tuple(text.split(",")) if text else ()
    for kind in kinds:
        if kind not in _KINDS:
            raise ExperimentError(f"--attention: want some of {', '.join(_KINDS)}, got {kind!r}", 2)
    return kinds


def _out(line: Any) -> pathlib.Path:
    """A run that is not the paper's never replaces the paper's result."""
    if line.out is not None:
        return line.out
    name = line.size
    if line.attention:
        name += f"-{line.attention.replace(',', '-')}"
    if line.seed:
        name += f"-seed{line.seed}"
    if line.device != "cpu":
        name += f"-{line.device}"
    return pathlib.Path("models") / "paper" / name


def _names(what: str) -> list[str]:
    """The names of the experiments that a command is about."""
    if what == "all":
        return registry.in_all()
    return registry.names() if what == "list" else [what]


def _settings(line: Any, names: Sequence[str]) -> list[Settings]:
    kinds, paths, out = _attention(line.attention), _data_paths(line.data), _out(line)
    threads = line.threads or len(os.sched_getaffinity(0))
    wanted = []
    for name in names:
        experiment = registry.find(name)
        if kinds and not set(kinds) & set(experiment.attention):
            if len(names) > 1:
                continue
            raise ExperimentError(
                f"--attention: {name}: want some of "
                f"{', '.join(experiment.attention)}, got {line.attention}",
                2,
            )
        if line.device not in experiment.devices:
            if len(names) > 1:
                continue
            raise ExperimentError(
                f"--device: {name}: want {' or '.join(experiment.devices)} "
                f"(all that it measures runs there), got {line.device}",
                2,
            )
        wanted.append(
            Settings(
                experiment,
                line.size,
                out / name,
                kinds,
                line.seed,
                threads,
                paths,
                line.device,
                line.force,
            )
        )
    return wanted


def _check_device(wanted: Sequence[Settings]) -> None:
    """Checks before any work that the device is here and that no result of another device is where
    this one's would be."""
    for one in wanted:
        stored = result.device_of(one)
        if stored not in ("", one.device):
            raise ExperimentError(
                f"--out: want a folder without results of another device than "
                f"{one.device}, got {one.out} with one of {stored}",
                2,
            )
    if wanted and wanted[0].device != "cpu":
        machine.check_device(wanted[0].device)


def _list(wanted: Sequence[Settings]) -> None:
    """Prints one line an experiment: that it is current, or why it would run and how long."""
    for one in wanted:
        try:
            reason = result.stale(one)
        except ExperimentError as error:
            reason = f"cannot run: {str(error).splitlines()[0]}"
        minutes = one.experiment.minutes.get(one.size, 10.0)
        text = f"{reason}; planned {duration(60 * minutes)}" if reason else "current"
        print(f"{one.experiment.name:<12}{one.experiment.paper:<18}{text}")
    for name in registry.MODULES:
        if name not in registry.names():
            print(f"{name:<12}{'':<18}not in this build")


def _report(line: Any) -> None:
    from experiments.core import report

    if not plotting.available():
        raise ExperimentError(f"report: {plotting.MISSING}")
    suffix = "" if line.device == "cpu" else f"-{line.device}"
    to = line.to or pathlib.Path("docs") / f"paper{suffix}"
    source = to / "results" if line.redraw else _out(line)
    for path in report.write(source, to):
        print(path)


def _check_build() -> None:
    """A result is recorded with the commit of the sources: its programs must be
    theirs."""
    work = places.out_of_date(places.programs())
    if work:
        raise ExperimentError(
            f"want programs built from these sources, got {places.programs()} "
            f"with work to do ({work}); run `make build` first"
        )


def _run(arguments: Sequence[str]) -> int:
    line = _parser().parse_args(arguments)
    if line.what == "report":
        _report(line)
        return 0
    everything = line.what in ("all", "list")
    if not everything and line.what not in registry.names():
        raise ExperimentError(f"{line.what} is not in this build")
    wanted = _settings(line, _names(line.what))
    if line.what == "list":
        _list(wanted)
    else:
        _check_device(wanted)
        _check_build()
        run_all(wanted, line.quiet)
    return 0


class _Terminated(KeyboardInterrupt):
    """SIGTERM stops as Ctrl-C does."""


def _terminate(number: int, frame: object) -> None:
    del number, frame
    raise _Terminated


def main(arguments: Sequence[str]) -> int:
    """Runs one command line and returns the exit code."""
    signal.signal(signal.SIGTERM, _terminate)
    # A child of `&` in a script starts with SIGINT ignored; stopping is orderly here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return _run(arguments)
    except ExperimentError as error:
        print(f"{_PROGRAM}: error: {error}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt as stop:
        again = shlex.join([*_PROGRAM.split(), *(a for a in arguments if a != "--force")])
        print(f"stopped; measurements are kept. Continue with: {again}", file=sys.stderr)
        return 143 if isinstance(stop, _Terminated) else 130
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    except OSError as error:
        print(f"{_PROGRAM}: error: {error}", file=sys.stderr)
        return 1
