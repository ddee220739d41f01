"""Stored results and the report written from them (docs/benchmarks)."""


def plain_row(row):
    """One line of text for a row."""
    shape = " ".join(
        f"{k}={row[k]}"
        for k in ("batch", "seq_len", "d_key", "dtype", "causal", "rows", "inputs", "outputs")
        if k in row
    )
    name = row["side"]
    if name == "tarn" and "case" in row:
        name = row["case"]
    line = f"  {name:32}{shape:44}{row['median_ms']:10.3f} ms"
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
        return f"{100 * value:.0f} %"
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


def add(folder, table, ctx):
    pass


def write(folder):
    pass
