"""The page of the long experiment, from its stored result."""

from __future__ import annotations

import math

from experiments.core import (
    Criterion,
    Evidence,
    Figures,
    JsonDict,
    Learner,
    Page,
    Panel,
    Picture,
    Section,
    Series,
    Table,
    number,
    size,
    why,
)
from experiments.core.baselines import CAPTION, best, fitted
from experiments.core.scale import counted, lasting, parameters

_RESIDENT = 1.05  # of the process, from token 1,000 on: buffers of reading are in it
_EARLY = (500, 1000)  # positions that late ones are held against: past a learned row
_WORSE = 1.05  # times the bits per letter there
_ALIKE = 2.0  # bits per letter of four that are equally likely: a state that says nothing


def _stream(result: JsonDict) -> JsonDict | None:
    """What `tarn eval --by-position` told; None where it was not run."""
    stream = result["measured"].get("stream")
    return stream["figures"] if stream else None


def _time_ratio(result: JsonDict) -> float | None:
    figures = _stream(result)
    return figures["steps"]["ratio"] if figures and figures["steps"] else None


def _memory(result: JsonDict) -> Criterion:
    name, part = "memory from token 1,000 to the last", "constant memory per token"
    wanted = "state the same, process at most 5 % more"
    figures = _stream(result)
    if figures is None:
        return Criterion(name, wanted, "not measured", None, part=part)
    near, far = figures["memory"]["near"], figures["memory"]["far"]
    got = (
        f"state {size(near['state_bytes'])} and {size(far['state_bytes'])}, process "
        f"{size(near['resident_bytes'])} and {size(far['resident_bytes'])}"
    )
    holds = (
        near["state_bytes"] == far["state_bytes"]
        and far["resident_bytes"] <= _RESIDENT * near["resident_bytes"]
    )
    return Criterion(name, wanted, got, holds if _is_long(result) else None, part=part)


def _is_long(result: JsonDict) -> bool:
    figures = _stream(result)
    return figures is not None and figures["tokens"] >= 1_000_000


def criteria(result: JsonDict) -> list[Criterion]:
    ratio = _time_ratio(result) if _is_long(result) else None
    return [
        Criterion.at_most(
            _time_name(result),
            ratio,
            1.02,
            "x",
            part="constant time per token",
            opposite=ratio is not None and ratio > 1.5,
        ),
        _memory(result),
        *_reads(result),
        _listops(result),
    ]


def _reads(result: JsonDict) -> list[Criterion]:
    """Time and memory would be constant of a state that has long been full, too:
    whether the letters still cost as little, and less than without any model."""
    part = "the model still predicts at the end"
    figures = _stream(result)
    buckets = figures["buckets"] if figures is not None and _is_long(result) else []
    early = next((one for one in buckets if (one["begin"], one["end"]) == _EARLY), None)
    late = buckets[-1] if buckets else None
    where = "late in the stream" if late is None else f"from {late['begin']:,} to {late['end']:,}"
    ratio = late["bits_per_token"] / early["bits_per_token"] if early and late else None
    most = late["bits_per_token"] + 2 * late["standard_error"] if late else None
    evidence = [_read_by_model(result, late)] if late else []
    return [
        Criterion.at_most(
            f"bits per letter {where} over those from {_EARLY[0]} to {_EARLY[1]:,}",
            ratio,
            _WORSE,
            "x",
            part=part,
            evidence=evidence,
        ),
        Criterion(
            "bits per letter there plus two standard errors",
            f"below {_ALIKE:g}, the cost of four equally likely letters",
            "not measured" if most is None else f"{most:.4f}",
            None if most is None else most < _ALIKE,
            part=part,
            evidence=evidence,
            opposite=late is not None
            and late["bits_per_token"] - 2 * late["standard_error"] >= _ALIKE,
        ),
    ]


def _read_by_model(result: JsonDict, late: JsonDict) -> Evidence:
    """The model against tables of counts, which read the same letters. That a model can read
    on takes one training."""
    trivial = best(result, "long/stream")
    model = Learner("linear", late["bits_per_token"], trivial.value if trivial else None)
    return Evidence([model])


def _listops(result: JsonDict) -> Criterion:
    """ListOps decides no claim; the page reports it because a reader wants the comparison."""
    name = "ListOps, accuracy of linear and softmax"
    runs = result["measured"]["listops"]
    got = ", ".join(f"{run['kind']} {100 * run['held_out'][-1][1]:.1f} %" for run in runs)
    return Criterion(
        name,
        "reported",
        got or "not measured",
        bool(runs) and result["size"] != "quick" or None,
        reported=True,
    )


def _time_name(result: JsonDict) -> str:
    """The criterion's name, with the tokens whose timed steps are compared."""
    figures = _stream(result)
    if figures is None or not figures["steps"]:
        return "time per token late in the stream over that near its beginning"
    near, far = figures["steps"]["near"], figures["steps"]["far"]
    return (
        f"time per token from {far['begin']:,} to {far['end']:,} over that from "
        f"{near['begin']:,} to {near['end']:,}"
    )


def _tried(result: JsonDict) -> dict[str, str]:
    """What was done for each criterion, printed where it is missed."""
    time, memory, *reads, _ = criteria(result)
    still = (
        "the model trains on rows far shorter than the stream; nothing was done to keep "
        "the sums useful over so many letters."
    )
    return {
        time.name: "steps from the early and the late state are timed alternately in one "
        "process, on one thread. The median of three processes is taken, because "
        "memory placement differs between processes; a step reads and writes the "
        "state once, whatever the position.",
        memory.name: "the stream is read and unpacked in pieces of bounded size and no token "
        "is kept; beyond the state, the process grows by memory for reading and "
        "by the allocator's.",
        **{one.name: still for one in reads},
    }


# --- The stream ---------------------------------------------------------------


def _position_section(result: JsonDict, figures: Figures) -> tuple[Section, Picture]:
    stream = result["measured"]["stream"]
    told = stream["figures"]
    rows = [one for one in told["buckets"] if one["tokens"] >= 10]
    middle = [(math.sqrt(one["begin"] * one["end"]), one) for one in rows]
    lines = [
        Series(
            "linear",
            [(x, one["bits_per_token"]) for x, one in middle],
            "linear",
            marker=True,
            band=[
                (
                    x,
                    one["bits_per_token"] - 2 * one["standard_error"],
                    one["bits_per_token"] + 2 * one["standard_error"],
                )
                for x, one in middle
            ],
        ),
        Series(
            "four equally likely letters",
            [(rows[0]["begin"], 2.0), (rows[-1]["end"], 2.0)],
            "lstm",
            dash=2,
        ),
    ]
    trivial = best(result, "long/stream")
    lines += trivial.line(lines) if trivial else []
    picture = figures.lines(
        "position",
        Panel(lines, "position in the stream", "bits per letter", log_x=True),
        "Bits per letter by position in the stream",
        "Mean over all letters between 1, 2, 5, 10, ...; the band is two standard errors."
        + (f"{CAPTION[:-1]}, over all letters." if trivial else ""),
    )
    near, far = told["memory"]["near"], told["memory"]["far"]
    table = Table(
        ["position", "us per token", "state", "process"],
        [
            [
                f"{near['position']:,}",
                told["steps"]["near"]["median_us"],
                size(near["state_bytes"]),
                size(near["resident_bytes"]),
            ],
            [
                f"{far['position']:,}",
                told["steps"]["far"]["median_us"],
                size(far["state_bytes"]),
                size(far["resident_bytes"]),
            ],
        ],
        f"Single steps from both states alternately, medians of {told['steps']['count']:,} "
        f"each, one thread; the median of three processes, whose ratios are "
        f"{', '.join(f'{one:.3f}' for one in told['ratios'])}. In blocks the model reads "
        f"{number(told['tokens_per_second'])} letters per second. The memory of the process "
        "includes weights, buffers and the program.",
    )
    past = [one for one in rows if one["begin"] >= 10 * stream["seq_len"]]
    within = [one for one in rows if one["end"] <= stream["seq_len"]]
    text = (
        f"A byte model trains on {stream['learned_letters']:,} letters of the genome of E. "
        f"coli in rows of {stream['seq_len']}{_long_rows(stream)} and reads "
        f"{_which_end(stream)} {told['tokens']:,} letters, which it has not seen, as one "
        f"sequence without resets. Four equally likely letters take 2 bits each; on "
        f"held-out blocks the model needs {stream['held_out']:.4f}."
    )
    if past and within:
        text += (
            f" From position {past[-1]['begin']:,} on it needs "
            f"{past[-1]['bits_per_token']:.4f} bits per letter, from "
            f"{within[-1]['begin']:,} on {within[-1]['bits_per_token']:.4f}. There is no "
            "guarantee that sums over so many letters stay useful; these are the measured "
            "values."
        )
    return Section("One stream", [text, picture, table, *_bits_table(result)]), picture


def _bits_table(result: JsonDict) -> list[Table]:
    """The model and the tables of counts on the same letters; none where none were fitted."""
    trivial = fitted(result, "long/stream")
    if not trivial:
        return []
    told = result["measured"]["stream"]["figures"]
    rows = [
        ["linear", f"{told['bits_per_token']:.4f}"],
        *([one.title, f"{one.value:.4f}"] for one in trivial),
    ]
    return [
        Table(
            ["", "bits per letter"],
            rows,
            f"Mean over the {told['tokens']:,} letters of the stream. The tables are "
            "fitted on the model's training blocks.",
        )
    ]


def _long_rows(stream: JsonDict) -> str:
    """`--long-every`: a batch laid end to end."""
    every = stream["long_every"]
    return f" (1 update in {every} takes the whole batch as one row)" if every else ""


def _which_end(stream: JsonDict) -> str:
    """Whether the rest is all that was not learned."""
    left = stream["genome_letters"] - stream["learned_letters"]
    return "the rest," if left <= stream["figures"]["tokens"] + 1 else "the last"


def _state_error_section(rows: list[JsonDict]) -> Section:
    cells = [
        [f"{row['position']:,}", *(f"{row[key]:.1e}" for key in ("S", "z", "out"))] for row in rows
    ]
    return Section(
        "Accuracy of float32 sums",
        [
            "The state is a sum over all tokens so far, in float32 whatever the type of the "
            "weights. Here it is compared with the same sum in float64, over random queries, keys "
            "and values (4 heads, 32 wide).",
            Table(
                ["position", "S", "z", "result"],
                cells,
                "Largest difference divided by the largest entry; the result is compared over "
                "the last block.",
            ),
        ],
    )


# --- ListOps ------------------------------------------------------------------


def _listops_section(result: JsonDict) -> Section:
    measured = result["measured"]
    examples, majority = (measured["listops_data"][key] for key in ("examples", "majority"))
    rows = [
        [
            run["kind"],
            f"{100 * run['held_out'][-1][1]:.2f}",
            number(run["seconds"]),
            number(run["cpu_seconds"]),
        ]
        for run in measured["listops"]
    ]
    trivial = fitted(result, "long/listops")
    rows += [[one.title, f"{100 * one.value:.2f}", None, None] for one in trivial]
    if not trivial:
        rows.append(["most common label", f"{100 * majority:.2f}", None, None])
    error = 100 * math.sqrt(0.25 / examples)
    lengths = {"quick": "10 to 40", "cpu": "20 to 100", "full": "500 to 2,000"}[result["size"]]
    return Section(
        "ListOps",
        [
            f"Nested MIN, MAX, MED and SM (sum modulo 10) over digits, {lengths} tokens, "
            "classified by an encoder with a head on the mean (`tarn train --preset listops`)."
            + (
                ""
                if result["size"] == "full"
                else " The expressions are short so that training takes minutes; results are not "
                "comparable with figures for the long form, 500 to 2,000 tokens."
            ),
            Table(
                ["attention", "accuracy, %", "seconds", "CPU seconds"],
                rows,
                f"One seed, {examples:,} held-out examples, with a standard error of at most "
                f"{error:.1f} points.",
            ),
        ],
    )


def _told_of_stream(result: JsonDict) -> str:
    """Whether the stream shows what the claim says, by the criteria."""
    found = [one for one in criteria(result) if one.claims]
    if any(one.holds is None for one in found):
        return (
            "The stream is too short to say whether time and memory per token grow, and "
            "whether the model still predicts at its end. "
        )
    missed = [one for one in found if not one.holds]
    undecided = "; ".join(dict.fromkeys(why(one) for one in found if why(one)))
    if undecided and not missed:
        return (
            "Time and memory per token do not grow with the stream. Its last letters take "
            f"at most {_WORSE:g} times as many bits as those near its beginning, but the "
            f"model has learned little: {undecided}. "
        )
    if not missed:
        return (
            "Time and memory per token do not grow with the stream, and its last letters "
            f"take at most {_WORSE:g} times as many bits as those near its beginning. "
        )
    return (
        "Not as claimed: "
        + "; ".join(f"{one.name}: {one.got}, required {one.wanted}" for one in missed)
        + ". "
    )


def _by_kind(runs: list[JsonDict], kind: str) -> float | None:
    return next((run["held_out"][-1][1] for run in runs if run["kind"] == kind), None)


def _told_of_listops(result: JsonDict) -> str:
    runs = result["measured"]["listops"]
    linear, softmax = _by_kind(runs, "linear"), _by_kind(runs, "softmax")
    if linear is None or softmax is None:
        return ""
    # Two standard errors of a difference of shares.
    error = 2 * math.sqrt(0.5 / result["measured"]["listops_data"]["examples"])
    text = f"ListOps, one seed: linear {100 * linear:.1f} %, softmax {100 * softmax:.1f} %"
    if abs(linear - softmax) <= error:
        return f"{text}, not significantly different."
    return f"{text}; linear is {'worse' if linear < softmax else 'better'} in that seed."


def _figure_of(result: JsonDict) -> str:
    ratio, figures = _time_ratio(result), _stream(result)
    if ratio is None or figures is None:
        return ""
    trivial = best(result, "long/stream")
    text = f"{ratio:.3f}x the time per token"
    if trivial and figures["buckets"]:
        text += (
            f"; at the end {figures['buckets'][-1]['bits_per_token']:.3f} bits per letter, "
            f"{trivial.name} {trivial.value:.3f}"
        )
    return text


def _scale(result: JsonDict) -> str:
    """Of the model that reads the stream; nothing where it was not read."""
    stream = result["measured"].get("stream")
    if not stream:
        return ""
    rows = f" on rows of {stream['seq_len']} letters" if "seq_len" in stream else ""
    if "long_every" in stream:
        rows += f", every {stream['long_every']}th update on one long row"
    took = stream.get("training_seconds")
    parts = [
        parameters(counted(result, "long")),
        lasting([took], "of training") + rows if took else "",
        "one seed",
        f"a stream of {stream['figures']['tokens']:,} letters",
    ]
    return ", ".join(part for part in parts if part)


def page(result: JsonDict, figures: Figures) -> Page:
    sections: list[Section] = []
    picture: Picture | None = None
    headline = "the stream was not read"
    agrees = ""
    ratio = _time_ratio(result)
    told = _stream(result)
    if told is not None and ratio is not None:
        section, picture = _position_section(result, figures)
        sections.append(section)
        headline = (
            f"a token after position {told['tokens']:,} takes {ratio:.3f} times as "
            f"long as one after 1,000; the state has "
            f"{size(told['memory']['far']['state_bytes'])}"
        )
        agrees = _told_of_stream(result)
    if result["measured"].get("state_error"):
        sections.append(_state_error_section(result["measured"]["state_error"]))
    sections.append(_listops_section(result))
    agrees += (
        "ListOps is not trained enough at this size for a result."
        if result["size"] == "quick"
        else _told_of_listops(result)
    )
    return Page(
        short="A million tokens at constant time and memory per token",
        figure=_figure_of(result),
        scale=_scale(result),
        headline=headline,
        agrees=agrees.strip(),
        differences=["the paper has no such experiment; it tests the limits of the recurrent form"],
        sections=sections,
        theirs="none; recurrence at constant time and memory per token follows from the paper's "
        "equations (18) to (20)",
        picture=picture,
        tried=_tried(result),
    )
