"""The scale of an experiment in words: a claim holds, or does not, at this size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from experiments.core.types import JsonDict
from plotting import number


def span(values: Iterable[float], unit: str, digits: int = 3) -> str:
    """ "3,500 to 7,000 updates"; one figure where all are alike; nothing of none."""
    found = list(values)
    if not found:
        return ""
    low, high = number(min(found), digits), number(max(found), digits)
    return f"{low if low == high else f'{low} to {high}'} {unit}"


def parameters(counts: Iterable[int]) -> str:
    """ "0.398 to 0.402 million parameters"."""
    return span((count / 1e6 for count in counts), "million parameters")


def lasting(seconds: Sequence[float], what: str) -> str:
    """ "1.1 to 1.4 minutes a training"; in seconds where none takes a minute."""
    if max(seconds, default=0.0) < 60:
        return span(seconds, f"seconds {what}", 2)
    return span((one / 60 for one in seconds), f"minutes {what}", 2)


def trainings(runs: Sequence[JsonDict], counts: Iterable[int] | None = None) -> str:
    """Parameters, updates, minutes and seeds of trainings. `counts` where the runs do not hold
    their numbers of parameters."""
    if counts is None:
        counts = [run["parameters"] for run in runs]
    seeds = len({run["seed"] for run in runs if "seed" in run})
    parts = [
        parameters(counts),
        span((run["updates"] for run in runs), "updates", 6),
        lasting([run["seconds"] for run in runs], "per run"),
        f"{seeds} seed{'s' * (seeds != 1)}" if seeds else "",
    ]
    return ", ".join(part for part in parts if part)


# Parameters of the cpu size's models where results do not hold them, as `tarn info` counts them.
COUNTED: dict[str, tuple[int, ...]] = {
    "copy": (398_923,),
    "completion": (813_598,),
    "speech": (573_456, 902_416),  # Bi-LSTM, transformers
    "long": (462_592,),
    "maps": (68_139, 77_376, 79_553),  # copy, recall, text
    "recall": (88_132, 92_292, 100_612),  # d_key 16, 32, 64; softmax as 32
}


def counted(result: JsonDict, name: str) -> tuple[int, ...]:
    """Those of an experiment; none at another size than they were counted at."""
    return COUNTED[name] if result["size"] == "cpu" else ()
