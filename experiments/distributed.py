"""Beyond the paper: collectives and the trainer on several ranks over a network of this
machine's own namespaces, a model of their time, and what it predicts for clusters."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from types import TracebackType

from experiments.core import (
    Experiment,
    ExperimentError,
    JsonDict,
    Progress,
    Settings,
    measure,
)
from experiments.core.data import ROOT
from experiments.distributed_page import criteria, page
from experiments.ranks import alpha_beta, network, predictions, trainer
from experiments.ranks.alpha_beta import Constants
from experiments.ranks.conclusions import (
    fitted,
    foretell_trained,
    predicted,
    shape_facts,
)
from experiments.ranks.repeats import repeats_of

LOOPBACK: JsonDict = {"name": "loopback", "latency_s": 0.0, "rate_bit_s": 0.0, "simulated": False}
HELD_OUT = "1 ms, 1 Gbit/s"  # nothing is fitted to it
_NETWORKS = {
    "quick": [(0.1, 1)],
    "cpu": [(0.1, 1), (0.1, 10), (0.1, 100), (1, 0.1), (1, 1), (10, 1)],
    "full": [(delay, rate) for delay in (0.1, 1, 10) for rate in (0.1, 1, 10, 100)],
}
_SIZES = {
    "quick": (1 << 10, 1 << 14, 1 << 16, 1 << 18),
    "cpu": (1 << 10, 1 << 13, 1 << 16, 1 << 19, 1 << 22, 1 << 26),
    "full": tuple(1 << power for power in range(10, 27, 2)),
}
_RANKS = {"quick": (2,), "cpu": (2, 4, 8), "full": (2, 4, 8)}
_OPS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")
# What calls are planned to take; one that would take longer than LONGEST_S is left out.
_PLANNED = Constants(2e-4, 1e-4, 1e-9)
_LONGEST_S = {"quick": 1.0, "cpu": 5.0, "full": 30.0}
_CASE_S = {"quick": 0.05, "cpu": 0.6, "full": 2.0}
_REPEATS = 15
_TIMEOUT_S = 300.0
# The layer whose exchange is timed for one row: 4 heads, 64 wide. _PASSED are the row's tokens.
PASSING = predictions.Shape("passing", 256, 1, 4)
_PASSED = {
    "quick": (1 << 9, 1 << 11),
    "cpu": (1 << 11, 1 << 13, 1 << 15, 1 << 17),
    "full": tuple(1 << power for power in range(11, 20)),
}

# The model that `tarn train` learns here is a decoder over letters.
_TRAINED = {"quick": (64, 1), "cpu": (256, 4), "full": (512, 8)}  # d_model, layers
_WIDER = {"quick": 64, "cpu": 512, "full": 1024}  # for the time of a token and parameter
_TOKENS = {"quick": (32, 4), "cpu": (256, 8), "full": (512, 16)}  # of a row, rows
# Tokens of the one row that sequence parallel ranks share.
_CUT = {"quick": (128,), "cpu": (2048, 8192), "full": (8192, 65536)}
# Tokens of the one row whose training's memory is reported; the model has two layers.
_HELD = {"quick": (1 << 12,), "cpu": (1 << 18, 1 << 20), "full": (1 << 18, 1 << 20)}
_HELD_WIDTH, _HELD_LAYERS, _HELD_UPDATES, _HELD_TOKEN_S = 64, 2, 4, 15e-6
_UPDATES = {"quick": 6, "cpu": 10, "full": 20}
_STEP_S = {"quick": 0.05, "cpu": 0.8, "full": 20.0}  # as planned


def cores() -> int:
    """Cores that ranks share here, however many threads one of them has."""
    return len(os.sched_getaffinity(0))


def networks(size: str) -> list[JsonDict]:
    """The simulated networks of a size."""
    return [
        {
            "name": f"{delay:g} ms, {rate:g} Gbit/s",
            "latency_s": delay / 1e3,
            "rate_bit_s": rate * 1e9,
            "simulated": True,
        }
        for delay, rate in _NETWORKS[size]
    ]


def is_fitted(row: JsonDict, sizes: tuple[int, ...], most_ranks: int) -> bool:
    """Whether the model is fitted to a point: every other size, on all networks but one, with all
    numbers of ranks but the largest of several. The rest checks it."""
    return (
        sizes.index(row["bytes"]) % 2 == 0
        and row["network"] != HELD_OUT
        and (row["ranks"] < most_ranks or most_ranks == 2)
    )


class Collectives:
    """The program experiments.ranks.collectives, started when it is needed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Collectives:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            if error is not None:
                self._process.kill()  # its ranks and its network end with it
            self._process.communicate()

    def ask(self, request: JsonDict) -> JsonDict:
        """The measuring process's answer; ExperimentError where it has none."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-B", "-m", "experiments.ranks.collectives"],
                cwd=ROOT,
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline() or '{"error": "it ended"}')
        if "error" in answer:
            raise ExperimentError(f"collectives: {answer['error']}")
        return answer


class Run:
    """One run: what this machine permits, and point after point."""

    def __init__(self, settings: Settings, progress: Progress, collectives: Collectives) -> None:
        self.settings, self.progress, self.collectives = settings, progress, collectives
        self.size = settings.size
        self.refused = network.refused()
        self.untrained = trainer.missing()
        self.networks = [LOOPBACK, *([] if self.refused else networks(self.size))]
        self.cores = cores()
        self.plan()

    # --- Plan -----------------------------------------------------------------

    def _planned_s(self, op: str, size: int, ranks: int, on: JsonDict) -> float:
        row = {"op": op, "bytes": size, "ranks": ranks, **on}
        return alpha_beta.predicted_seconds(row, _PLANNED, self.cores)

    def cases(self, on: JsonDict, ranks: int) -> list[JsonDict]:
        """Collectives on one network, without those that would take too long."""
        return [
            {"op": op, "bytes": size}
            for op in _OPS
            for size in _SIZES[self.size]
            if self._planned_s(op, size, ranks, on) <= _LONGEST_S[self.size]
        ]

    def passed(self, on: JsonDict, ranks: int) -> list[JsonDict]:
        """What one layer passes on, by length: states and, as ring attention, keys and values."""
        cases = []
        for length in _PASSED[self.size]:
            size = int(PASSING.key_value_bytes(length // ranks))
            cases.append(
                {"op": "all_gather", "bytes": ranks * PASSING.state_bytes(), "length": length}
            )
            if self._planned_s("ring", size, ranks, on) <= _LONGEST_S[self.size]:
                cases.append({"op": "ring", "bytes": size, "length": length})
        return cases

    def _cases_s(self, cases: list[JsonDict], on: JsonDict, ranks: int) -> float:
        each = [self._planned_s(case["op"], case["bytes"], ranks, on) for case in cases]
        return (
            1.0
            + 0.5 * ranks
            + sum(one * (2 + repeats_of(one, _CASE_S[self.size], _REPEATS)) for one in each)
        )

    def requests(self) -> dict[str, tuple[JsonDict, int, list[JsonDict]]]:
        """Network, ranks and cases of each request, by its part's name."""
        known = {}
        for on in self.networks:
            for ranks in _RANKS[self.size]:
                known[f"{on['name']}, {ranks} ranks"] = (on, ranks, self.cases(on, ranks))
        for on in self.networks[:2]:
            for ranks in _RANKS[self.size][:2]:
                known[f"passing, {on['name']}, {ranks} ranks"] = (on, ranks, self.passed(on, ranks))
        return known

    def trainings(self) -> list[JsonDict]:
        """Trainings: of one rank, whose time is that of computing, then of several."""
        if self.untrained:
            return []
        width, (tokens, rows) = _TRAINED[self.size][0], _TOKENS[self.size]
        share = {"mode": "data", "ranks": 1, "on": LOOPBACK, "width": width, "threads": 1}
        counts = _RANKS[self.size][:2]
        found = [share | {"tokens": tokens, "rows": rows // ranks} for ranks in (1, *counts)]
        found += [
            share | {"tokens": cut // ranks, "rows": 1}
            for cut in _CUT[self.size]
            for ranks in counts
        ]
        found += [
            share
            | {"tokens": tokens, "rows": rows, "width": wide, "threads": self.settings.threads}
            for wide in dict.fromkeys((width, _WIDER[self.size]))
        ]
        quick = self.size == "quick"
        for on in self.networks[: 1 if quick else 2]:
            found += [
                share | {"mode": mode, "ranks": ranks, "on": on, "tokens": tokens, "rows": rows}
                for ranks in counts
                for mode in ("data", "sharded")[: 1 if quick else 2]
            ]
        found += [
            share
            | {
                "mode": "sequence",
                "ranks": ranks,
                "on": self.networks[:2][-1],
                "tokens": cut,
                "rows": 1,
            }
            for cut in _CUT[self.size]
            for ranks in counts
        ]
        return list({part_of(one): one for one in found}.values())

    def held(self) -> list[JsonDict]:
        """Trainings on one long row, for the memory of a rank."""
        if self.untrained:
            return []
        one = {"on": LOOPBACK, "width": _HELD_WIDTH, "rows": 1, "threads": 1}
        counts = (1, 2) if self.size == "quick" else (1, 2, 4)
        return [
            one | {"mode": "sequence" if ranks > 1 else "data", "ranks": ranks, "tokens": tokens}
            for tokens in _HELD[self.size]
            for ranks in counts
        ]

    def plan(self) -> None:
        seconds = {
            name: self._cases_s(cases, on, ranks)
            for name, (on, ranks, cases) in self.requests().items()
        }
        for one in self.trainings():
            busy = max(1.0, one["ranks"] / self.cores)
            work = one["rows"] * one["tokens"] / (_TOKENS[self.size][0] * _TOKENS[self.size][1])
            wider = (one["width"] / _TRAINED[self.size][0]) ** 2
            seconds[part_of(one)] = 3.0 * busy + _UPDATES[self.size] * _STEP_S[self.size] * (
                0.3 + wider * work * busy / one["ranks"]
            )
        for one in self.held():
            busy = max(1.0, one["ranks"] / self.cores) / one["ranks"]
            seconds[held_part_of(one)] = 4.0 * max(1.0, one["ranks"] / self.cores) + (
                (_HELD_UPDATES + 1) * _HELD_TOKEN_S * one["tokens"] * busy
            )
        self.progress.plan(seconds)
        if self.refused:
            self.progress.note(f"distributed: no simulated network here: {self.refused}")
        if self.untrained:
            self.progress.note(f"distributed: no training of several ranks: {self.untrained}")

    # --- Points ---------------------------------------------------------------

    def ask(self, name: str, on: JsonDict, ranks: int, cases: list[JsonDict]) -> list[JsonDict]:
        """Rows of one request."""
        asked = {"latency_s": on["latency_s"], "rate_bit_s": on["rate_bit_s"]}
        request = {
            "ranks": ranks,
            "network": asked if on["simulated"] else None,
            "cases": [{"op": one["op"], "bytes": one["bytes"]} for one in cases],
            "repeats": _REPEATS,
            "seconds": _CASE_S[self.size],
            "timeout_s": _TIMEOUT_S,
        }
        found = measure(
            self.settings, self.progress, name, request, lambda: self.collectives.ask(request)
        )
        where = {"network": on["name"], "ranks": ranks, **asked, "simulated": on["simulated"]}
        return [case | where | row for case, row in zip(cases, found["rows"], strict=True)]

    def train(self, one: JsonDict, part: str, layers: int, updates: int) -> JsonDict:
        """One training as a row."""
        on = one["on"]
        text = self.settings.out / "text.txt"
        flags = trainer_flags(text, one, layers, updates)
        inputs = {key: value for key, value in one.items() if key != "on"} | {
            "network": on,
            "updates": updates,
            "layers": layers,
        }

        def work() -> JsonDict:
            trainer.write_text(
                text, max(1 << 20, 64 * max(_CUT[self.size]), 2 * max(_HELD[self.size]))
            )
            folder = self.settings.out / "runs" / "ranks"
            if not on["simulated"]:
                return trainer.train_ranks(folder, one["ranks"], one["mode"], flags)
            with network.Network(one["ranks"], on["latency_s"], on["rate_bit_s"]) as nodes:
                return trainer.train_ranks(folder, one["ranks"], one["mode"], flags, nodes)

        found = measure(self.settings, self.progress, part, inputs, work)
        return (
            {key: value for key, value in one.items() if key != "on"}
            | {
                "network": on["name"],
                "latency_s": on["latency_s"],
                "rate_bit_s": on["rate_bit_s"],
                "simulated": on["simulated"],
            }
            | found
        )

    def results(self) -> JsonDict:
        """Everything measured, and what follows from it."""
        rows: list[JsonDict] = []
        passing: list[JsonDict] = []
        for name, (on, ranks, cases) in self.requests().items():
            (passing if name.startswith("passing") else rows).extend(
                self.ask(name, on, ranks, cases)
            )
        layers, updates = _TRAINED[self.size][1], _UPDATES[self.size]
        trained = [self.train(one, part_of(one), layers, updates) for one in self.trainings()]
        held = [
            self.train(one, held_part_of(one), _HELD_LAYERS, _HELD_UPDATES) for one in self.held()
        ]
        for row in rows:
            row["fitted"] = is_fitted(row, _SIZES[self.size], max(_RANKS[self.size]))
        fits = {
            kind: fitted(rows, simulated, self.cores)
            for kind, simulated in (("loopback", False), ("simulated", True))
            if any(row["simulated"] == simulated for row in rows)
        }
        return {
            "seeds": [self.settings.seed],
            "cores": self.cores,
            "refused": self.refused,
            "untrained": self.untrained,
            "networks": self.networks,
            "rows": [kept(row) for row in rows],
            "passing": passing,
            "fits": fits,
            "passed_shape": shape_facts(PASSING),
            "held": [
                {key: row[key] for key in ("ranks", "tokens", "parameters", "peak_bytes", "step_s")}
                for row in held
            ],
            "trained": foretell_trained(trained, fits, layers, self.cores),
            **predicted(trained, fits["loopback"], self.settings.threads),
        }


def kept(row: JsonDict) -> JsonDict:
    """A point's row as it is stored, without what its network's name says."""
    return {
        key: value
        for key, value in row.items()
        if key not in ("latency_s", "rate_bit_s", "simulated")
    }


def part_of(one: JsonDict) -> str:
    """A training's name in progress and files."""
    who = "1 rank" if one["ranks"] == 1 else f"{one['ranks']} ranks, {one['mode']}"
    return (
        f"train {who}, {one['rows']} x {one['tokens']}, {one['width']} wide, "
        f"{one['threads']} threads, {one['on']['name']}"
    )


def held_part_of(one: JsonDict) -> str:
    """The same of a training whose memory is told."""
    return f"memory, {one['ranks']} ranks, {one['tokens']} tokens"


def trainer_flags(text: pathlib.Path, one: JsonDict, layers: int, updates: int) -> list[str]:
    """Flags of `tarn train` for one training: no dropout, no samples, and one evaluation, at the
    end. Positions have no table, which would grow with the row, as would its gradients."""
    width, end = one["width"], str(updates)
    return [
        "--data",
        str(text),
        "--tokenizer",
        "char",
        "--attention",
        "linear",
        "--positions",
        "sinusoidal",
        "--d-model",
        str(width),
        "--n-layers",
        str(layers),
        "--n-heads",
        "4",
        "--d-ff",
        str(4 * width),
        "--seq-len",
        str(one["tokens"]),
        "--batch",
        str(one["rows"]),
        "--dropout",
        "0",
        "--long-every",
        "0",
        "--warmup",
        "2",
        "--sample-every",
        "0",
        "--steps",
        end,
        "--eval-every",
        end,
        "--eval-windows",
        "2",
        "--checkpoint-every",
        end,
        "--threads",
        str(one["threads"]),
    ]


def run(settings: Settings, progress: Progress) -> JsonDict:
    """Measures what this machine permits."""
    with Collectives() as collectives:
        return Run(settings, progress, collectives).results()


EXPERIMENT = Experiment(
    name="distributed",
    title="Training on several machines",
    paper="beyond the paper",
    claim="When a sequence is split across ranks, linear attention exchanges one state per "
    "layer and head, whatever the length, while ring attention exchanges the keys and "
    "values of every token. A latency-bandwidth model predicts communication and step "
    "times.",
    sources=(
        "experiments/distributed.py",
        "experiments/ranks/alpha_beta.py",
        "experiments/ranks/collectives.py",
        "experiments/ranks/conclusions.py",
        "experiments/ranks/forwarder.py",
        "experiments/ranks/network.py",
        "experiments/ranks/predictions.py",
        "experiments/ranks/repeats.py",
        "experiments/ranks/trainer.py",
        "python/tarn/train.py",
        "src/config",
        "src/core",
        "src/data",
        "src/kernels",
        "src/text",
        "src/torch_nn",
        "src/torch_ops",
        "src/train",
    ),
    attention=("linear",),
    devices=("cpu",),
    minutes={"quick": 0.65, "cpu": 16, "full": 270},
    run=run,
    criteria=criteria,
    page=page,
)
