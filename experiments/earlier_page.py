"""The page of the earlier models, from its stored result."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from experiments.core import (
    Criterion,
    Figures,
    JsonDict,
    Page,
    Panel,
    Picture,
    Section,
    Series,
    Table,
    number,
)

_NAMES = {"rnn": "RNN", "lstm": "LSTM", "cnn": "CNN", "linear": "linear",
          "softmax": "softmax"}
_COLOURS = {"rnn": "naive", "lstm": "lstm", "cnn": "reformer", "linear": "linear",
            "softmax": "softmax"}
_RECURRENT = ("rnn", "lstm")
_FLAT = 1.25  # times: a cost that does not grow with the context
_GROWS = 2.0
_PARITY = 0.05  # bits a byte
_SEQUENTIAL = 1.5  # times: one row of as many tokens over many rows


def _kinds(result: JsonDict) -> list[str]:
    """Those that were run, in the order of the tables."""
    there = {run["kind"] for run in result["measured"]["runs"]}
    return [kind for kind in _NAMES if kind in there]


def _runs(result: JsonDict, kind: str) -> list[JsonDict]:
    return [run for run in result["measured"]["runs"] if run["kind"] == kind]


def _at(run: JsonDict, updates: int) -> float:
    """Bits of the last evaluation within so many updates; of the first one where
    none is."""
    within = [one["bits"] for one in run["held_out"] if one["step"] <= updates]
    return float(within[-1] if within else run["held_out"][0]["bits"])


def _common(result: JsonDict) -> int:
    """Updates that every kind made."""
    return min(run["updates"] for run in result["measured"]["runs"])


def _bits(result: JsonDict, kind: str, common: bool = False) -> list[float]:
    """Of the seeds, after the wall time or after the updates that all made."""
    last = _common(result) if common else 1 << 62
    return [_at(run, last) for run in _runs(result, kind)]


def _median(result: JsonDict, kind: str, common: bool = False) -> float:
    return statistics.median(_bits(result, kind, common))


# --- Criteria -----------------------------------------------------------------


def _unmeasured(name: str, wanted: str, part: str) -> Criterion:
    return Criterion(name, wanted, "not measured", None, part=part)


def _better(result: JsonDict, kinds: Sequence[str], than: Sequence[str], common: bool,
            part: str) -> Criterion:
    """Whether the worst of `kinds` lies below the best of `than`, by medians;
    the opposite where no seed of it does."""
    when = "the same updates" if common else "the same time"
    name = (f"held-out bits a byte after {when}: {' and '.join(_NAMES[k] for k in kinds)} against "
            f"the best of {', '.join(_NAMES[k] for k in than)}")
    wanted = "lower, all seeds"
    if result["size"] == "quick" or not {*kinds, *than} <= {*_kinds(result)}:
        return _unmeasured(name, wanted, part)
    worst = max(kinds, key=lambda kind: _median(result, kind, common))
    best = min(than, key=lambda kind: _median(result, kind, common))
    ours, theirs = _bits(result, worst, common), _bits(result, best, common)
    got = (f"{_median(result, worst, common):.3f} ({_NAMES[worst]}) against "
           f"{_median(result, best, common):.3f} ({_NAMES[best]})")
    return Criterion(name, wanted, got, max(ours) < min(theirs), part=part,
                     opposite=min(ours) > max(theirs))


def _parity(result: JsonDict) -> Criterion:
    name, wanted = "linear's bits a byte beyond softmax's, the same time", f"at most {_PARITY:g}"
    part = "linear trains as well as softmax"
    if result["size"] == "quick" or not {"linear", "softmax"} <= {*_kinds(result)}:
        return _unmeasured(name, wanted, part)
    more = _median(result, "linear") - _median(result, "softmax")
    apart = min(_bits(result, "linear")) > max(_bits(result, "softmax"))
    return Criterion(name, wanted, f"{more:+.3f}", more <= _PARITY, part=part,
                     opposite=more > 2 * _PARITY and apart)


def _growth(result: JsonDict, kind: str) -> float | None:
    """Time of a token after the longest context over that after the shortest."""
    rows = sorted((row for row in result["measured"]["tokens"] if row["kind"] == kind),
                  key=lambda row: row["context"])
    return rows[-1]["us"] / rows[0]["us"] if len(rows) > 1 and rows[0]["us"] > 0 else None


def _cost(result: JsonDict, kind: str) -> Criterion:
    """Constant for all but softmax attention."""
    contexts = sorted({row["context"] for row in result["measured"]["tokens"]})
    name = (f"{_NAMES[kind]}: time of a token after {number(contexts[-1])} over that after "
            f"{number(contexts[0])}")
    growth = _growth(result, kind) if result["size"] != "quick" else None
    grows = kind == "softmax"
    part = ("softmax pays for the context" if grows else
            "linear generates at a constant cost" if kind == "linear" else
            "recurrent networks generate at a constant cost" if kind in _RECURRENT else
            "convolutions generate at a constant cost")
    if grows:
        return Criterion.at_least(name, growth, _GROWS, "x", part=part,
                                  opposite=growth is not None and growth < 1)
    return Criterion.at_most(name, growth, _FLAT, "x", part=part,
                             opposite=growth is not None and growth > _GROWS)


def _sequential(result: JsonDict, kind: str) -> Criterion:
    """As many tokens in one row as in many: a recurrent network has nothing to do
    beside them."""
    batch, seq_len = result["measured"]["many_rows"]
    recurrent = kind in _RECURRENT
    name = (f"{_NAMES[kind]}: an update of one row of {number(batch * seq_len)} tokens over one "
            f"of {batch} rows of {seq_len}")
    part = ("recurrent networks train one position after the other" if recurrent else
            "linear trains all positions at once")
    found = [one for one in result["measured"]["updates"] if one["kind"] == kind]
    ratio = None
    if found and result["size"] != "quick":
        ratio = found[0]["one_row_ms"] / found[0]["many_rows_ms"]
    if recurrent:
        return Criterion.at_least(name, ratio, _SEQUENTIAL, "x", part=part,
                                  opposite=ratio is not None and ratio < 1)
    return Criterion.at_most(name, ratio, _FLAT, "x", part=part,
                             opposite=ratio is not None and ratio > _GROWS)


def _equal(result: JsonDict) -> Criterion:
    """That sizes are comparable, which the rest stands on."""
    counts = [run["parameters"] for run in result["measured"]["runs"]]
    name = "largest over smallest number of parameters"
    ratio = max(counts) / min(counts) if len(_kinds(result)) > 1 else None
    if ratio is None:
        return Criterion.at_most(name, None, 1.1, "x", goal=True)
    return Criterion.at_most(name, ratio if result["size"] != "quick" else None, 1.1, "x",
                             goal=True)


def criteria(result: JsonDict) -> list[Criterion]:
    transformers = ("linear", "softmax")
    return [
        *(_cost(result, kind) for kind in ("rnn", "lstm", "cnn")),
        *(_sequential(result, kind) for kind in _RECURRENT),
        _better(result, transformers, _RECURRENT, True,
                "transformers learn more from an update than recurrent networks"),
        _better(result, transformers, _RECURRENT, False,
                "transformers learn more in a time than recurrent networks"),
        _better(result, transformers, ("cnn",), False,
                "transformers learn more in a time than convolutions"),
        _cost(result, "softmax"), _parity(result), _cost(result, "linear"),
        _sequential(result, "linear"), _equal(result)]


# --- The page -----------------------------------------------------------------


def _curves(result: JsonDict, x: str) -> list[Series]:
    """A line a kind: the median of its seeds, and their range around it."""
    lines = []
    for kind in _kinds(result):
        points, band = [], []
        for row in zip(*(run["held_out"] for run in _runs(result, kind))):
            place = statistics.median(one[x] for one in row)
            bits = [one["bits"] for one in row]
            points.append((place, statistics.median(bits)))
            band.append((place, min(bits), max(bits)))
        lines.append(Series(_NAMES[kind], points, _COLOURS[kind], band=band))
    return lines


def _learning(result: JsonDict, figures: Figures) -> Picture:
    panels = [Panel(_curves(result, "step"), "updates", "held-out bits a byte", "By updates",
                    log_x=True, log_y=True),
              Panel(_curves(result, "elapsed_s"), "seconds", "", "By time", log_x=True,
                    log_y=True)]
    return figures.lines(
        "learning", panels, "Held-out bits a byte of five models over updates and over seconds",
        "Medians of the seeds and their range. Rates are constant after warm-up, so that each "
        "point of a curve is the end of a shorter run.")


def _generating(result: JsonDict, figures: Figures) -> Picture:
    lines = []
    for kind in _kinds(result):
        rows = sorted((row for row in result["measured"]["tokens"] if row["kind"] == kind),
                      key=lambda row: row["context"])
        lines.append(Series(
            _NAMES[kind], [(row["context"], row["us"]) for row in rows], _COLOURS[kind],
            marker=True, band=[(row["context"], row["least_us"], row["most_us"]) for row in rows]))
    contexts = sorted({row["context"] for row in result["measured"]["tokens"]})
    return figures.lines(
        "token", Panel(lines, "tokens of context", "microseconds a token", log_x=True, log_y=True,
                       x_ticks=contexts),
        "Time of one more token over the length of the context",
        "One sequence, random weights of the same shapes, which change no time; medians over the "
        "rounds and their range.")


def _table(result: JsonDict) -> Table:
    rows = []
    common, times = _common(result), {one["kind"]: one for one in result["measured"]["updates"]}
    for kind in _kinds(result):
        runs = _runs(result, kind)
        bits = _bits(result, kind)
        spread = f"{min(bits):.3f} to {max(bits):.3f}" if len(bits) > 1 else None
        rows.append([_NAMES[kind], f"{runs[0]['parameters']:,}",
                     f"{result['measured']['rates'][kind]:g}",
                     number(times[kind]["ms"]), number(times[kind]["many_rows_ms"]),
                     number(times[kind]["one_row_ms"]),
                     f"{runs[0]['updates']:,}", f"{_median(result, kind, True):.3f}",
                     f"{_median(result, kind):.3f}", spread,
                     number(statistics.median(run["seconds"] for run in runs)),
                     number(statistics.median(run["cpu_seconds"] for run in runs))])
    batch, seq_len = result["measured"]["rows"]
    many = result["measured"]["many_rows"]
    return Table(
        ["model", "parameters", "rate", "ms an update", "many rows", "one row", "updates",
         f"bits after {common:,}", "bits at the end", "seeds", "seconds", "CPU seconds"], rows,
        f"An update reads {batch} rows of {seq_len} characters. Many rows, one row: ms of an update "
        f"of {many[0]} rows of {many[1]}, and of one row of as many characters. Bits a byte of "
        "held-out text, medians over the seeds; seconds are the trainer's own, evaluations "
        "included.")


def _token_table(result: JsonDict) -> Table:
    contexts = sorted({row["context"] for row in result["measured"]["tokens"]})
    times = {(row["kind"], row["context"]): row["us"] for row in result["measured"]["tokens"]}
    rows = []
    for kind in _kinds(result):
        growth = _growth(result, kind)
        rows.append([_NAMES[kind], *(number(times[kind, one]) for one in contexts),
                     None if growth is None else f"{growth:.2f}x"])
    return Table(["model", *(f"after {number(one)}" for one in contexts), "growth"], rows,
                 "Microseconds a token.")


def _best(result: JsonDict) -> str:
    return min(_kinds(result), key=lambda kind: _median(result, kind))


def _agrees(result: JsonDict) -> str:
    if result["size"] == "quick":
        return "This size is too short to say."
    order = sorted(_kinds(result), key=lambda kind: _median(result, kind))
    text = ("Held-out bits a byte after the same time, from the best: " + ", ".join(
        f"{_NAMES[kind]} {_median(result, kind):.3f}" for kind in order) + ". ")
    growths = {kind: _growth(result, kind) for kind in order}
    text += "A token after the longest context costs, of one after the shortest: " + ", ".join(
        f"{_NAMES[kind]} {growth:.2f}x" for kind, growth in growths.items()
        if growth is not None) + "."
    return text


def _headline(result: JsonDict) -> str:
    kinds = _kinds(result)
    text = f"{_NAMES[_best(result)]} learns most in {number(result['measured']['seconds'])} s"
    if "linear" in kinds:
        text += f"; linear {_median(result, 'linear'):.3f} bits a byte"
    for kind in ("softmax", "lstm"):
        if kind in kinds:
            text += f", {_NAMES[kind]} {_median(result, kind):.3f}"
    return text


def page(result: JsonDict, figures: Figures) -> Page:
    picture = _learning(result, figures)
    batch, seq_len = result["measured"]["rows"]
    models = result["measured"]["models"]
    shapes = "; ".join(
        f"{_NAMES[kind]}: {keys['n_layers']} layer{'s' if keys['n_layers'] > 1 else ''}, "
        f"D {keys['d_model']}" + (f", {keys['n_heads']} heads" if "n_heads" in keys else "")
        + (f", {keys['kernel_size']} tokens wide" if "kernel_size" in keys else "")
        for kind, keys in models.items())
    seen = {kind: 1 + keys["n_layers"] * (keys["kernel_size"] - 1)
            for kind, keys in models.items() if "kernel_size" in keys}
    about = [
        f"Characters of Shakespeare's plays, in rows of {seq_len}, batch {batch}, AdamW. "
        f"{shapes}. Each kind learns for {number(result['measured']['seconds'])} seconds, as many "
        "updates as fit; an update is timed before. Recurrent networks are torch's own, whose "
        "state begins at zero in every row.", picture, _table(result)]
    token = ["One more token of one sequence, by the Python package. Recurrent networks and linear "
             "attention carry a state of fixed size, softmax attention keeps all keys and values. "
             "Both transformers have sinusoidal positions here, and rotary ones in training"
             + (f"; the convolutions see {seen['cnn']} tokens and compute them anew, for the "
                "package keeps no state of theirs" if seen else "") + ".",
             _generating(result, figures), _token_table(result)]
    tried = ("rates were chosen by short runs ahead, kind by kind; sizes by the number of "
             "parameters alone.")
    return Page(
        headline=_headline(result), agrees=_agrees(result), picture=picture, theirs="none",
        differences=[
            "the paper trains no language model and compares with a recurrent network in speech "
            "alone",
            f"rows of {seq_len} characters: what lies further back is of no use to any of them, "
            "which favours models with a short memory",
            "a CPU has few cores: what stands still while a recurrent network goes from one "
            "position to the next is little beside what stands still on a GPU",
            "a constant rate, and no dropout"],
        sections=[Section("Training", about), Section("Generating", token)],
        tried={one.name: tried for one in criteria(result)})
