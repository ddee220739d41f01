"""An experiment, and what one run of it is asked to do: each names the other."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from experiments.core import data as data_sets
from experiments.core import digest
from experiments.core.places import programs
from experiments.core.types import DEVICES, Criterion, ExperimentError, JsonDict

if TYPE_CHECKING:
    from experiments.core.figures import Figures
    from experiments.core.page import Page
    from experiments.core.progress import Progress

T = TypeVar("T")


@dataclass(frozen=True)
class Experiment:
    """One experiment: what it is called, what decides its result, and its three
    functions. All but `run` work from the stored result alone."""

    name: str
    title: str
    paper: str  # "Figure 2"
    claim: str  # the paper's, one sentence
    # Files and folders below the repository whose content decides the figures:
    # the module with the measuring code and the engine's folders it depends on.
    sources: tuple[str, ...]
    run: Callable[[Settings, Progress], JsonDict]
    criteria: Callable[[JsonDict], list[Criterion]]
    page: Callable[[JsonDict, Figures], Page]
    # Names of core/data.py; "mnist|fashion-mnist" is the first that is found,
    # "?cifar10" is used where it is there.
    data: tuple[str, ...] = ()
    # What --attention may pick from, in the order of the tables.
    attention: tuple[str, ...] = ("linear", "softmax")
    # What --device may name: "cpu" alone where nothing is trained and no operator
    # of torch is run.
    devices: tuple[str, ...] = DEVICES
    # Planned wall time on two AVX-512 cores, by size.
    minutes: Mapping[str, float] = field(
        default_factory=lambda: {"quick": 0.3, "cpu": 10.0, "full": 600.0}
    )


@dataclass(frozen=True)
class Settings:
    """The settings of one run of one experiment. `out` is the experiment's own folder."""

    experiment: Experiment
    size: str  # quick, cpu or full
    out: pathlib.Path
    attention: tuple[str, ...] = ()  # asked for; empty: all of the experiment's
    seed: int = 0
    threads: int = 2
    data_paths: Mapping[str, pathlib.Path] = field(default_factory=dict)
    device: str = "cpu"  # of trainings and operators; the runtime has the CPU only
    force: bool = False  # nothing that was measured before is used again

    @property
    def attentions(self) -> tuple[str, ...]:
        """The kinds to run, in the experiment's order."""
        asked = self.attention or self.experiment.attention
        return tuple(one for one in self.experiment.attention if one in asked)

    def pick(self, *, quick: T, cpu: T, full: T) -> T:
        """The value for this size."""
        return {"quick": quick, "cpu": cpu, "full": full}[self.size]

    def data(self, names: str) -> pathlib.Path:
        """Folder (or file, where one was given) of a data set; "a|b" is the
        first that is found. ExperimentError (3) names what was looked at."""
        return self._found(names)[1]

    def has(self, name: str) -> bool:
        """Whether an optional set ("?name" of the experiment) is there: named by
        --data, or in the default places of sets. One that is named and not there is an
        error."""
        if name in self.data_paths:
            return True
        try:
            data_sets.find(name, self.data_paths)
        except ExperimentError:
            return False
        return True

    def data_name(self, names: str) -> str:
        """Which of "a|b" is the one found."""
        return self._found(names)[0]

    def data_file(self, names: str, stem: str) -> pathlib.Path:
        """One file of a set by its unpacked name; it may be .gz or .zst."""
        name, path = self._found(names)
        return data_sets.file(name, path, stem)

    def _found(self, names: str) -> tuple[str, pathlib.Path]:
        declared = [one.removeprefix("?") for one in self.experiment.data]
        if names not in declared:  # its result would not depend on them
            raise ValueError(f"{self.experiment.name}: data: want one of {declared}, got {names!r}")
        return data_sets.find(names, self.data_paths)

    @property
    def tarn(self) -> pathlib.Path:
        """The program."""
        path = programs() / "tarn"
        if not path.is_file():
            raise ExperimentError(f"want the program {path} (build it with `make build`)")
        return path

    def inputs(self) -> JsonDict:
        """All that decides the result: it is measured again when this changes."""
        return {
            "settings": self.recorded(),
            "data": [
                data_sets.describe(names.removeprefix("?"), self.data_paths)
                for names in self.experiment.data
                if not names.startswith("?") or self.has(names[1:])
            ],
            "sources": digest.of_sources((*self.experiment.sources, *digest.DRIVING)),
        }

    def recorded(self) -> JsonDict:
        """The settings as they go into a result: no paths of this machine."""
        return {
            "size": self.size,
            "attention": list(self.attentions),
            "seed": self.seed,
            "threads": self.threads,
            "device": self.device,
        }

    def command(self) -> str:
        """What repeats this run."""
        words = ["tarn", "experiment", self.experiment.name, "--size", self.size]
        if self.attention:
            words += ["--attention", ",".join(self.attentions)]
        if self.seed:
            words += ["--seed", str(self.seed)]
        if self.device != "cpu":
            words += ["--device", self.device]
        for names in self.experiment.data:
            if names.startswith("?") and names[1:] in self.data_paths:
                words += ["--data", f"{names[1:]}=PATH"]
        return " ".join(words)
