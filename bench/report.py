"""Stored results and the report written from them: docs/benchmarks holds one
JSON file per SIMD target (and machine, where several were measured), the figures,
README.md with goals and figures, and rows.md with all that was timed."""

import json
import pathlib
import re

import measures
import plots
import race_page
from plotting import number

_SHAPE = (
    "layer",
    "image",
    "batch",
    "seq_len",
    "heads",
    "d_key",
    "dtype",
    "causal",
    "layout",
    "rows",
    "model",
    "inputs",
    "outputs",
    "width",
    "sets",
    "steps",
    "weights",
    "part",
    "depth",
)


def shape_text(row):
    return " ".join(f"{key}={row[key]}" for key in _SHAPE if key in row)


def plain_row(row):
    """One line of text for a row."""
    name = row["side"]
    if name == "tarn" and "case" in row:
        name = row["case"]
    line = f"  {name:32}{shape_text(row):44}{row['median_ms']:10.3f} ms"
    line += f"  min {row['min_ms']:.3f}"
    if row.get("useful_flop"):
        line += f"  {row['useful_gflops']:6.1f} GFLOP/s"
    if row.get("percent_of_limit"):
        line += f"  {row['percent_of_limit']:.0f} % of the {row['bound']} limit"
    if row.get("share_of_sgemm"):
        line += f"  {row['share_of_sgemm'] * 100:.1f} % of sgemm"
    marks = "" if row["valid"] else "  INVALID: the limits moved"
    marks += f"  cpu/wall {row['cpu_per_wall']:.2f}" if row["contended"] else ""
    threads = row["threads"]
    return f"{line}  [{row['target']}, {threads} thread{'s' * (threads > 1)}]{marks}"


def figure(value, unit):
    if value is None:
        return "-"
    if unit == "share":
        return f"{100 * value:.3g} %"
    if unit == "x":
        return f"{value:.2f}x"
    return f"{value:.3g} {unit}"


def plain_goal(goal):
    """One line of text for a goal."""
    unit = goal["unit"]
    verdict = {True: "holds", False: "DOES NOT HOLD", None: "no goal here"}
    remark = f" ({goal['beside']})" if goal["beside"] else ""
    return (
        f"  {verdict[goal['holds']]}: {goal['measure']}: {figure(goal['value'], unit)}, "
        f"must be {goal['relation']} {figure(goal['bound'], unit)}{remark}"
        + ("" if goal["valid"] else " INVALID")
    )


# --- Storing ------------------------------------------------------------------


def _path(folder, target, machine=""):
    """avx3.json, or avx3_amd.json for a machine that has its own column."""
    stem = f"{target}_{machine}" if machine else target
    return pathlib.Path(folder) / f"{stem.lower()}.json"


def _rounded(value):
    """Rounds to five figures: more are noise, and changed lines in a repository."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(one) for one in value]
    return value


def add(folder, table, ctx, column=""):
    """Stores a table in place of its last measurement. column: name of a machine whose
    results are shown next to those of others."""
    import machine

    facts = machine.facts()
    if measures.ALL[table.name].peers:
        facts |= machine.peer_facts()
    path = _path(folder, facts["target"], column)
    path.parent.mkdir(parents=True, exist_ok=True)
    stored = json.loads(path.read_text()) if path.is_file() else {}
    stored[table.name] = _rounded(table.as_dict() | {"machine": facts, "threads": ctx.threads})
    ordered = {name: stored[name] for name in measures.ALL if name in stored}
    path.write_text(json.dumps(ordered, indent=1) + "\n")


# --- The report ---------------------------------------------------------------


def _stored(folder):
    """{target or target_machine: {table: result}}, widest vectors first."""
    order = {"AVX3": 0, "AVX2": 1, "SSE4": 2}
    found = {}
    for path in sorted(pathlib.Path(folder).glob("*.json")):
        found[path.stem.upper()] = json.loads(path.read_text())
    return dict(sorted(found.items(), key=lambda one: order.get(one[0].split("_")[0], 9)))


def _label(target):
    """The heading of a column: AVX3, AVX3 on AMD."""
    return target.replace("_", " on ")


def _machine_lines(target, tables):
    """The machine of a target's tables; where there were several, which measured what."""
    by_cpu = {}
    for name, table in tables.items():
        by_cpu.setdefault(table["machine"]["cpu"], {})[name] = table["machine"]
    peers = [t["machine"] for t in tables.values() if "fast_transformers" in t["machine"]]
    for measured in sorted(by_cpu.values(), key=len, reverse=True):
        newest = max(measured.values(), key=lambda m: m["date"])
        what = "" if len(by_cpu) == 1 else f"; measured there: {', '.join(measured)}"
        yield (
            f"- **{_label(target)}**: {newest['cpu']}, {newest['cores']} cores, {newest['caches']}, "
            f"{newest['memory_gib']} GiB; {newest['date']}; torch {newest['torch']} "
            f"({'; '.join(newest['torch_build'])}){what}"
        )
    if peers:
        yield (
            f"  - fast-transformers {peers[-1]['fast_transformers']}: "
            f"{peers[-1]['fast_transformers_build']}"
        )


# Goals by subject, in the order of the page; tables that are named nowhere come last.
_SUBJECTS = {
    "Operators": (
        "forward",
        "gradient",
        "share",
        "bfloat16",
        "length",
        "crossover",
        "threads",
        "context",
    ),
    "Layers and steps from Python": ("layers", "python_layers", "recurrent_step"),
    "Training": ("copy_task", "training_step", "precision", "training_memory"),
    "Generation": (
        "decode",
        "generation",
        "batch",
        "softmax_cache",
        "million",
        "core_taken",
        "idle",
    ),
    "Newer architectures": (
        "families",
        "recurrent_forms",
        "family_steps",
        "family_models",
        "hybrid_models",
        "recurrent_classes",
    ),
    "Texts": ("speculation", "llama_server"),
}
# What users ask first, misses included: a table and its goal.
_FIRST = (
    ("forward", 0),
    ("gradient", 0),
    ("share", 0),
    ("python_layers", 1),
    ("training_step", 1),
    ("training_step", 4),
    ("recurrent_step", 0),
    ("decode", 0),
    ("decode", 1),
    ("million", 0),
)
_GOAL_HEAD = ["| measure | target | measured | met | notes |", "|---|---|---|---|---|"]
_CROSSOVER = "crossover"


def _most_threads(stored):
    return max(
        (
            row["threads"]
            for tables in stored.values()
            for table in tables.values()
            for row in table["rows"]
            if "threads" in row
        ),
        default=1,
    )


def _first(stored):
    """The first screen: ten goals of the machine that measured most of them."""

    def goals(tables):
        return [
            (tables[name]["goals"][index], tables[name])
            for name, index in _FIRST
            if name in tables and index < len(tables[name]["goals"])
        ]

    target = max(stored, key=lambda one: len(goals(stored[one])))
    found = goals(stored[target])
    if not found:
        return []
    _, table = found[0]
    return [
        f"On {_label(target)} ({table['machine']['cpu']}, {table['machine']['cores']} cores, "
        f"2 threads unless stated); nothing was timed on more than {_most_threads(stored)} "
        "threads.",
        "",
        *_GOAL_HEAD,
        *(_goal_line(goal, of) for goal, of in found),
    ]


def _goals(stored):
    """The goals by subject, a table a machine."""
    named = [name for names in _SUBJECTS.values() for name in names]
    rest = tuple(name for name in _without_races(measures.ALL) if name not in named)
    for subject, names in (*_SUBJECTS.items(), ("Others", rest)):
        some = {
            target: [tables[name] for name in names if name in tables]
            for target, tables in stored.items()
        }
        some = {
            target: [table for table in tables if table["goals"]] for target, tables in some.items()
        }
        if not any(some.values()):
            continue
        yield f"\n### {subject}"
        for target, tables in some.items():
            by_machine = {}
            for table in tables:
                by_machine.setdefault(table["machine"]["cpu"], []).append(table)
            for cpu, measured in by_machine.items():
                yield f"\n{_label(target)}: {cpu}\n"
                yield from _GOAL_HEAD
                for table in measured:
                    for goal in table["goals"]:
                        yield _goal_line(goal, table)
        if _CROSSOVER in names:
            yield from _crossings(stored)


def _crossings(stored):
    """Softmax attention's time over linear attention's by length, a row a target."""
    rows = {}
    for target, tables in stored.items():
        if _CROSSOVER in tables:
            series = tables[_CROSSOVER]["plots"][0]["series"]
            rows[target] = dict(series["torch softmax / tarn"])
    lengths = sorted({length for points in rows.values() for length in points})
    if not lengths:
        return
    yield "\nTime of torch's softmax attention over that of linear attention, by length N:\n"
    yield "| N | " + " | ".join(str(length) for length in lengths) + " |"
    yield "|---|" + "--:|" * len(lengths)
    for target, points in rows.items():
        cells = [f"{points[one]:.2f}x" if one in points else "" for one in lengths]
        yield f"| {_label(target)} | " + " | ".join(cells) + " |"


def _without_races(tables):
    """Those that README.md shows; the others have a page."""
    return {name: table for name, table in tables.items() if not race_page.is_race(name)}


def _missed(target, tables):
    """How many goals of a target are met and how many are missed."""
    goals = [goal for table in _without_races(tables).values() for goal in table["goals"]]
    judged = [goal for goal in goals if goal["holds"] is not None]
    missed = [goal for goal in judged if not goal["holds"]]
    moved = [goal for goal in judged if goal["holds"] and not goal["valid"]]
    if not judged:
        return f"- **{_label(target)}**: no goal was measured."
    noisy = f" ({len(moved)} of them in runs whose limits moved)" if moved else ""
    return (
        f"- **{_label(target)}**: {len(judged) - len(missed)} of {len(judged)} goals are met{noisy}, "
        f"{len(missed)} are missed."
    )


def _bold(text):
    """Sets figures of the tuned build in bold: it is the peer to compare with."""
    return re.sub(r"[0-9.]+x its tuned build", r"**\g<0>**", text)


def _measure(goal):
    """A share is of a bound where it cannot exceed 1; else the other side is a reference."""
    text = goal["measure"].replace(
        ": of the bandwidth of a copy", ": bandwidth over that of a copy (a reference, no bound)"
    )
    return f"**{text}**" if "tuned" in text else text


def _by_medians(goal, table):
    """What a share of the read bandwidth is by the medians of both rows, where that says
    less than the median of the pairs."""
    if "of the read bandwidth" not in goal["measure"]:
        return []
    model = goal["measure"].partition(",")[0]
    rows = {row["side"]: row for row in table["rows"] if row.get("model") == model}
    if not {"step", "read"} <= rows.keys():
        return []
    share = rows["read"]["median_ms"] / rows["step"]["median_ms"]
    busy = ", on a busy machine" if rows["step"]["contended"] else ""
    if share > 0.97 * goal["value"]:
        return []
    return [
        f"**{figure(share, 'share')} by medians**{busy}; the other figure is the median of pairs"
    ]


def _goal_line(goal, table):
    mark = "" if goal["valid"] else " (limits moved)"
    verdict = {True: "yes", False: "**no**", None: ""}[goal["holds"]]
    bound = goal["bound"]
    must = (
        "shown"
        if bound is None
        else (f"{'at most ' if goal['relation'] == '<=' else ''}{figure(bound, goal['unit'])}")
    )
    notes = [_bold(goal["beside"])] if goal["beside"] else []
    if goal["measure"].startswith(_CROSSOVER):
        notes = ["by length: see the table below"]
    notes += _by_medians(goal, table)
    return (
        f"| {_measure(goal)} | {must} | {figure(goal['value'], goal['unit'])}{mark} | {verdict} "
        f"| {'; '.join(notes)} |"
    )


def _row_line(row):
    side = row["side"] if row["side"] != "tarn" else row.get("case", "tarn")
    cells = [
        f"**{side}**" if "tuned" in side else side,
        shape_text(row),
        str(row["threads"]),
        number(row["median_ms"]),
        number(row["min_ms"]),
        number(row["useful_flop"] / 1e9) if row.get("useful_flop") else "",
        number(row["executed_flop"] / 1e9) if row.get("executed_flop") else "",
        number(row["bytes"] / 1e6) if row.get("bytes") else "",
        number(row["useful_gflops"]) if row.get("useful_flop") else "",
        f"{row['percent_of_limit']:.0f} ({row['bound']})" if row.get("bound") else "",
        f"{100 * row['share_of_sgemm']:.0f}" if row.get("share_of_sgemm") else "",
        # Of servers, which are other processes, it is not known.
        f"{row['cpu_per_wall']:.2f}" + (" !" if row["contended"] else "")
        if "cpu_per_wall" in row
        else "-",
        "" if row["valid"] else "limits moved",
    ]
    return "| " + " | ".join(cells) + " |"


def _limits_line(table):
    seen = [row["limits"] for row in table["rows"] if "limits" in row]
    if not seen:
        return ""
    parts = []
    for key, name, unit in (
        ("fma_gflops", "multiply-adds", "GFLOP/s"),
        ("sgemm_gflops", "sgemm", "GFLOP/s"),
        ("copy_gbs", "copy", "GB/s"),
        ("read_gbs", "read", "GB/s"),
    ):
        values = [limits[key] for limits in seen]
        parts.append(f"{name} {min(values):.0f} to {max(values):.0f} {unit}")
    return "Machine limits in these runs: " + ", ".join(parts) + "."


def drawn_figures(target, tables):
    """{file name: bytes} of a target's figures."""
    return {
        f"{target.lower()}-{plot['name']}.svg": plots.draw(plot)
        for table in tables.values()
        for plot in table["plots"]
    } | race_page.draw(target, tables)


def _draw(target, tables, folder):
    """Draws the figures of a target and removes all others of it."""
    drawn = drawn_figures(target, tables)
    for name, svg in drawn.items():
        (folder / name).write_bytes(svg)
    for path in folder.glob(f"{target.lower()}-*.svg"):
        if path.name not in drawn:
            path.unlink()


def _figures(target, tables):
    """The plots of a target, each below its table's title."""
    for table in tables.values():
        for plot in table["plots"]:
            yield f"\n### {table['title']} ({_label(target)})\n"
            yield f"![{plot['title']}]({target.lower()}-{plot['name']}.svg)"


def _table(target, table):
    yield f"\n## {table['title']} ({_label(target)})\n"
    yield f"{table['note']} {_limits_line(table)}\n"
    yield (
        "| side | shape | threads | median ms | min ms | useful GFLOP | executed GFLOP "
        "| MB | useful GFLOP/s | % of larger limit | % of sgemm | cpu/wall | valid |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    for row in table["rows"]:
        yield _row_line(row)


_HOW = [
    "`make bench` and `make bench-peers` write this page; [bench/README.md](../../bench/README.md) explains the method.",
    'Ratios are taken within one run, pair by pair. "Useful" FLOP of linear attention per token and head, at C = 16:',
    "4KV + C(K+V) forward, 10KV + C(3K+2V) gradient. fast-transformers runs as pip installs it and, in bold, as its",
    '**tuned build** for the same instruction set. "Limits moved" marks results during which the machine\'s own speed',
    "changed by more than 5 %.",
]


_RACE_LINK = f" Against llama.cpp: [{race_page.PAGE}]({race_page.PAGE})."


def _write_page(path, title, lines):
    path.write_text("\n".join([f"# {title}", "", *_HOW, "", *lines]) + "\n")


def write(folder):
    """README.md, rows.md and the figures from all stored results; nothing where
    there are none. NoMatplotlib, and nothing written, without matplotlib."""
    folder, stored = pathlib.Path(folder), _stored(folder)
    for target, tables in stored.items():
        _draw(target, tables, folder)
    if not stored:
        return
    machines = [
        line for target, tables in stored.items() for line in _machine_lines(target, tables)
    ]
    missed = [_missed(target, tables) for target, tables in stored.items()]
    figures = [line for target, tables in stored.items() for line in _figures(target, tables)]
    race = race_page.lines(stored, _label, _GOAL_HEAD, _goal_line)
    if race:
        (folder / race_page.PAGE).write_text("\n".join(race) + "\n")
    rows = [
        line
        for target, tables in stored.items()
        for table in tables.values()
        for line in _table(target, table)
    ]
    _write_page(
        folder / "README.md",
        "Benchmarks",
        [
            *_first(stored),
            "",
            f"All measurements: [rows.md](rows.md).{_RACE_LINK if race else ''} Machines:",
            "",
            *machines,
            "",
            "## Goals",
            "",
            *missed,
            *_goals(stored),
            "",
            "## Figures",
            *figures,
        ],
    )
    _write_page(
        folder / "rows.md",
        "Benchmarks: all rows",
        [*machines, "", "Goals and figures: [README.md](README.md).", *rows],
    )
