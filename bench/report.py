"""Stored results and the report written from them: docs/benchmarks holds one
JSON file per SIMD target (and machine, where several were measured), the figures,
README.md with goals and figures, and rows.md with all that was timed."""

import json
import pathlib
import re

import measures
import plots
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
    beside = f" ({goal['beside']})" if goal["beside"] else ""
    return (
        f"  {verdict[goal['holds']]}: {goal['measure']}: {figure(goal['value'], unit)}, "
        f"must be {goal['relation']} {figure(goal['bound'], unit)}{beside}"
        + ("" if goal["valid"] else " INVALID")
    )


# --- Storing ------------------------------------------------------------------


def _path(folder, target, machine=""):
    """avx3.json, or avx3_amd.json for a machine that has a column of its own."""
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
    results stand beside those of others."""
    import machine

    facts = machine.facts()
    if measures.ALL[table.name].peers:
        facts |= machine.peer_facts()
    path = _path(folder, facts["target"], column)
    path.parent.mkdir(parents=True, exist_ok=True)
    stored = json.loads(path.read_text()) if path.is_file() else {}
    stored[table.name] = _rounded(
        table.as_dict() | {"machine": facts, "threads": ctx.threads}
    )
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


def _goals(stored):
    """One line per goal; two columns per target."""
    heads = [f"{_label(target)} | holds" for target in stored]
    yield "| measure | must reach | " + " | ".join(heads) + " | beside it |"
    yield "|---|---|" + "---|---|" * len(stored) + "---|"
    names = [name for name in measures.ALL if any(name in t for t in stored.values())]
    for name in names:
        tables = {target: tables.get(name) for target, tables in stored.items()}
        first = next(table for table in tables.values() if table)
        for index, goal in enumerate(first["goals"]):
            yield _goal_line(goal, index, tables)


def _missed(target, tables):
    """How many goals of a target hold and how many are missed."""
    goals = [goal for table in tables.values() for goal in table["goals"]]
    judged = [goal for goal in goals if goal["holds"] is not None]
    missed = [goal for goal in judged if not goal["holds"]]
    moved = [goal for goal in judged if goal["holds"] and not goal["valid"]]
    if not judged:
        return f"- **{_label(target)}**: no goal was measured."
    beside = f" ({len(moved)} of them in runs whose limits moved)" if moved else ""
    return (
        f"- **{_label(target)}**: {len(judged) - len(missed)} of {len(judged)} goals hold{beside}, "
        f"{len(missed)} are missed."
    )


def _bold(text):
    """Sets figures of the tuned build in bold: it is the peer to compare with."""
    return re.sub(r"[0-9.]+x its tuned build", r"**\g<0>**", text)


def _goal_line(goal, index, tables):
    cells, bounds, beside = [], [], []
    for target, table in tables.items():
        if table is None or index >= len(table["goals"]):
            cells += ["-", "-"]
            continue
        one = table["goals"][index]
        mark = "" if one["valid"] else " (limits moved)"
        verdict = {True: "yes", False: "**no**", None: ""}[one["holds"]]
        cells += [figure(one["value"], one["unit"]) + mark, verdict]
        bounds.append((one["relation"], one["bound"]))
        if one["beside"]:
            beside.append(one["beside"] if not beside else f"{_label(target)}: {one['beside']}")
    texts = [
        f"{'at most ' if relation == '<=' else ''}{figure(bound, goal['unit'])}"
        for relation, bound in dict.fromkeys(bounds)
        if bound is not None
    ]
    must = " / ".join(texts) or "shown"
    measure = f"**{goal['measure']}**" if "tuned" in goal["measure"] else goal["measure"]
    return f"| {measure} | {must} | {' | '.join(cells)} | {_bold('; '.join(beside))} |"


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
        f"{row['cpu_per_wall']:.2f}" + (" !" if row["contended"] else ""),
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
    return "Limits met: " + ", ".join(parts) + "."


def _draw(target, tables, folder):
    """Draws the figures of a target and removes all others of it."""
    drawn = {
        f"{target.lower()}-{plot['name']}.svg": plots.draw(plot)
        for table in tables.values()
        for plot in table["plots"]
    }
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
    "Written by `make bench` and `make bench-peers` (bench/README.md says how they measure). Ratios are taken within one run,",
    "pair by pair. \"Useful\" FLOP of linear attention: 4KV + C(K+V) forward, 10KV + C(3K+2V) gradient a token and head at C = 16.",
    "fast-transformers runs as pip installs it and, in bold, as its **tuned build** for the same instruction set.",
]


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
    machines = [line for target, tables in stored.items()
                for line in _machine_lines(target, tables)]
    missed = [_missed(target, tables) for target, tables in stored.items()]
    figures = [line for target, tables in stored.items() for line in _figures(target, tables)]
    rows = [line for target, tables in stored.items() for table in tables.values()
            for line in _table(target, table)]
    _write_page(folder / "README.md", "Benchmarks", [
        *machines, "", "All that was timed: [rows.md](rows.md).", "", "## Goals", "", *missed, "",
        *_goals(stored), "", "## Figures", *figures])
    _write_page(folder / "rows.md", "Benchmarks: all rows", [
        *machines, "", "Goals and figures: [README.md](README.md).", *rows])
