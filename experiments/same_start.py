"""Beyond the paper: its authors' library and tarn from the same weights, on the
same rows, with the same optimiser. Where the two compute the same function, the
losses coincide but for rounding."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import tempfile

from experiments.core import Experiment, ExperimentError, JsonDict, Progress, Settings, measure
from experiments.core.places import ROOT, programs
from experiments.same_start_page import criteria, page

_PEERS = ROOT / ".venv-peers"  # made by scripts/bench_setup.sh
_MISSING = (
    "fast-transformers is not installed here; scripts/bench_setup.sh makes the "
    "environment that has it"
)
_STEPS = {"quick": 10, "cpu": 500, "full": 3000}
_SHAPE = {
    "quick": {"d_model": 32, "n_layers": 1, "n_heads": 2, "seq_len": 32, "batch": 4},
    "cpu": {"d_model": 128, "n_layers": 2, "n_heads": 4, "seq_len": 64, "batch": 16},
    "full": {"d_model": 256, "n_layers": 4, "n_heads": 8, "seq_len": 128, "batch": 64},
}
_SECONDS = {"quick": 8.0, "cpu": 100.0, "full": 20_000.0}
_RUNS = 4


def _peer_files() -> tuple[str, ...]:
    """The peer's code below the repository, which decides the figures with ours:
    a result without it is measured again once it is there. Empty if it is not."""
    found = sorted(_PEERS.glob("lib/python3*/site-packages/fast_transformers"))
    return tuple(str(one.relative_to(ROOT)) for one in found[:1])


def _python() -> pathlib.Path | None:
    """The interpreter that has both libraries."""
    path = _PEERS / "bin" / "python"
    return path if path.exists() and _peer_files() else None


def _both(python: pathlib.Path, asked: JsonDict, progress: Progress) -> JsonDict:
    """What experiments/same_start_sides.py writes."""
    found = os.environ.get("PYTHONPATH", "")
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(asked["threads"]),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "python"), found]).rstrip(os.pathsep),
    }
    environment.setdefault("TARN_LIBRARY", str(programs() / "libtarn_pytorch.so"))
    command = [
        str(python),
        "-B",
        "-W",
        "ignore",
        "-m",
        "experiments.same_start_sides",
        json.dumps(asked),
    ]
    said: list[str] = []
    with tempfile.TemporaryFile("w+") as written:
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        ) as process:
            try:
                assert process.stderr is not None
                for line in process.stderr:
                    said.append(line.strip())
                    done = sum(one.endswith(" done") for one in said)
                    progress.at(done / _RUNS, f"{done} of {_RUNS} runs")
            except BaseException:
                process.kill()
                raise
        if process.returncode != 0:
            raise ExperimentError(f"same_start: {said[-1] if said else process.returncode}")
        written.seek(0)
        return json.load(written)


def run(settings: Settings, progress: Progress) -> JsonDict:
    """Trains with both libraries. Where the peer is not installed, the result only says
    so, because the experiments that come after this one must run all the same."""
    progress.plan({"both libraries": _SECONDS[settings.size]})
    python = _python()
    if python is None:
        progress.note(f"same_start: not measured: {_MISSING}")
        return {"seeds": [settings.seed], "missing": _MISSING}
    asked = {
        **_SHAPE[settings.size],
        "steps": _STEPS[settings.size],
        "seed": settings.seed,
        "threads": settings.threads,
    }
    figures = measure(
        settings, progress, "both libraries", asked, lambda: _both(python, asked, progress)
    )
    return {"seeds": [settings.seed], "asked": asked, **figures}


EXPERIMENT = Experiment(
    name="same_start",
    title="The authors' library and tarn from the same weights",
    paper="beyond the paper",
    claim="tarn computes what the authors' library computes: from the same weights, on the same "
    "rows, with the same optimiser, training follows the same course.",
    sources=(
        "experiments/same_start.py",
        "experiments/same_start_sides.py",
        *_peer_files(),
        "requirements-peers.txt",
        "python/tarn",
        "src/core",
        "src/kernels",
        "src/torch_nn",
        "src/torch_ops",
    ),
    attention=("linear",),
    devices=("cpu",),
    minutes={"quick": 0.2, "cpu": 1.7, "full": 400},
    run=run,
    criteria=criteria,
    page=page,
)
