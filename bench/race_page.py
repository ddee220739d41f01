"""The page of tarn and llama.cpp, docs/benchmarks/llama_cpp.md, from the stored tables of
measures/llama_cpp_race.py: a table for each measure, models by weights, and two figures for a
machine. Cells in which llama.cpp is faster are bold, with the reason where one was found."""

import measures
import plotting

PAGE = "llama_cpp.md"
COLUMNS = ("f32", "bf16", "int8", "int4")
TYPES = {"f32": "float32, F32", "bf16": "bf16, BF16", "int8": "int8, Q8_0", "int4": "int4, Q4_0"}
NATIVE = "llama.cpp"
# (part, weights) -> why llama.cpp is faster there, as it was found; a model may have its own
# reason, (part, weights, model).
REASONS: dict[tuple[str, ...], str] = {}

_HOW = [
    "`bench/run.py --only llama_cpp_race` measures and writes this page;",
    "[bench/README.md](../../bench/README.md) explains the method. Both programs read the same",
    "GGUF file of drawn weights with the same number of threads, and take turns run by run.",
    "Ratios are medians over the turns of llama.cpp's time over tarn's; bold: llama.cpp is faster.",
    "A read: of as many bytes as a step reads and writes, taken between the turns.",
]
_RATES = (
    ("decode", "decode, tokens/s after {at} tokens"),
    ("prefill", "prompt of {at} tokens, tokens/s"),
    ("batch", "{at} sequences at once, tokens/s of all"),
)
_PLACE = {"decode": "depth", "prefill": "seq_len", "batch": "batch"}


def is_race(name):
    return name.startswith(f"{measures.RACE}:")


def _races(tables):
    """{model: table} of a machine."""
    return {name.split(":")[1]: table for name, table in tables.items() if is_race(name)}


def _rows(races, part):
    """{(model, weights, place or None): {side: row}}"""
    found = {}
    for model, table in races.items():
        for row in table["rows"]:
            if row["part"] == part:
                at = row.get(_PLACE.get(part))
                found.setdefault((model, row["weights"], at), {})[row["side"]] = row
    return found


def _grid(races, cells, head):
    """A table of models by weights; cells: {(model, weights): text}."""
    if not cells:
        return
    yield f"\n{head}\n"
    yield "| model | " + " | ".join(TYPES[one] for one in COLUMNS) + " |"
    yield "|---|" + "---|" * len(COLUMNS)
    for model in races:
        texts = [cells.get((model, one), "") for one in COLUMNS]
        if any(texts):
            yield f"| {model} | " + " | ".join(texts) + " |"


def _rate(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


class _Notes:
    """Reasons, numbered in the order in which cells name them."""

    def __init__(self):
        self.texts = []

    def mark(self, part, weights, model):
        text = REASONS.get((part, weights, model)) or REASONS.get((part, weights))
        if text is None:
            return ""
        if text not in self.texts:
            self.texts.append(text)
        return f" ({self.texts.index(text) + 1})"


def _rate_cell(found, part, weights, model, notes):
    theirs, ours = found[NATIVE], found.get("tarn")
    other = next((row for side, row in found.items() if side.startswith(f"{NATIVE},")), None)
    text = _rate(theirs["tokens_per_s"])
    if other:
        text += f" (no AMX {_rate(other['tokens_per_s'])})"
    if ours is None:
        return f"- / {text}"
    over = theirs["tarn_over"]
    moved = "" if ours["valid"] else ", limits moved"
    text = f"{_rate(ours['tokens_per_s'])} / {text}, {over:.2f}x{moved}"
    return text if over >= 1 else f"**{text}**{notes.mark(part, weights, model)}"


def _rates(races, notes):
    for part, head in _RATES:
        rows = _rows(races, part)
        for at in sorted({key[2] for key in rows}):
            cells = {
                (model, weights): _rate_cell(found, part, weights, model, notes)
                for (model, weights, place), found in rows.items()
                if place == at
            }
            yield from _grid(races, cells, f"**{head.format(at=f'{at:,}')}: tarn / llama.cpp**")


def _pair(found, key, show):
    """tarn's figure and llama.cpp's; bold where llama.cpp's is the better, which is the less."""
    theirs, ours = found[NATIVE][key], found.get("tarn", {}).get(key)
    if ours is None:
        return f"- / {show(theirs)}"
    text = f"{show(ours)} / {show(theirs)}"
    return text if ours <= theirs else f"**{text}**"


def _others(races):
    rows = _rows(races, "decode")
    for at in sorted({key[2] for key in rows}):
        cells = {
            (model, weights): " / ".join(
                f"{100 * found[side]['share_of_read']:.0f}" if side in found else "-"
                for side in ("tarn", NATIVE)
            )
            for (model, weights, place), found in rows.items()
            if place == at
        }
        head = f"**decode after {at:,} tokens, bytes/s in % of a read: tarn / llama.cpp**"
        yield from _grid(races, cells, head)
    opened = _rows(races, "open")
    for key, head, show in (
        ("seconds_per_gb", "opening, seconds per GB, warm", lambda value: f"{value:.2f}"),
        ("resident_over_weights", "resident memory over weights", lambda value: f"{value:.2f}x"),
    ):
        cells = {(m, w): _pair(found, key, show) for (m, w, _), found in opened.items()}
        yield from _grid(races, cells, f"**{head}: tarn / llama.cpp**")
    cells = {}
    for (model, weights, _), found in _rows(races, "core taken").items():
        texts = [
            f"{found[f'{side}, 2, core taken']['over_one_thread']:.2f}x"
            if f"{side}, 2, core taken" in found
            else "-"
            for side in ("tarn", NATIVE)
        ]
        cells[model, weights] = " / ".join(texts)
    yield from _grid(
        races, cells, "**decode, two threads with a core taken over one thread: tarn / llama.cpp**"
    )


def _figures(target, races):
    """{file name: (title, part, place)} of what is drawn."""
    for part in ("decode", "prefill"):
        rows = _rows(races, part)
        rows = {key: found for key, found in rows.items() if "tarn_over" in found[NATIVE]}
        if rows:
            at = (min if part == "decode" else max)(key[2] for key in rows)
            yield f"{target.lower()}-llama_cpp_{part}.svg", part, at


def draw(target, tables):
    """{file name: SVG} of a machine: tarn's rate over llama.cpp's."""
    races = _races(tables)
    drawn = {}
    for name, part, at in _figures(target, races):
        rows = _rows(races, part)
        models = [one for one in races if any(key[0] == one for key in rows)]
        values = {}
        for weights in COLUMNS:
            found = [rows.get((model, weights, at), {}).get(NATIVE, {}) for model in models]
            if any("tarn_over" in one for one in found):
                values[weights] = [one.get("tarn_over") for one in found]
        drawn[name] = plotting.bar_figure(
            models,
            values,
            f"{part}, tarn's rate over llama.cpp's",
            kinds={"f32": "softmax", "bf16": "bound", "int8": "peer", "int4": "linear"},
            texts=lambda value: f"{value:.2f}",
        )
    return drawn


def _counts(races):
    goals = [goal for table in races.values() for goal in table["goals"]]
    judged = [goal for goal in goals if goal["holds"] is not None]
    met = sum(goal["holds"] for goal in judged)
    return f"{met} of {len(judged)} goals are met." if judged else "No goal was measured."


def _missed(races, goal_head, goal_line):
    found = [
        goal_line(goal, table)
        for table in races.values()
        for goal in table["goals"]
        if goal["holds"] is False
    ]
    return ["", "Goals that are missed:", "", *goal_head, *found] if found else []


def lines(stored, label, goal_head, goal_line):
    """The page's lines; none without a race. label(target): a heading; goal_head: the lines
    above goals, goal_line(goal, table): one of them."""
    found = {target: _races(tables) for target, tables in stored.items()}
    found = {target: races for target, races in found.items() if races}
    if not found:
        return []
    page = ["# tarn and llama.cpp", "", *_HOW]
    for target, races in found.items():
        notes = _Notes()
        newest = max((table["machine"] for table in races.values()), key=lambda one: one["date"])
        page += [
            f"\n## {label(target)}: {newest['cpu']}",
            "",
            f"{newest['cores']} cores, {newest['caches']}; {newest['date']}. {_counts(races)}",
            *_rates(races, notes),
            *_others(races),
            *_missed(races, goal_head, goal_line),
            *(f"\n({i + 1}) {text}" for i, text in enumerate(notes.texts)),
            "",
        ]
        for name, part, at in _figures(target, races):
            page.append(f"![{part} of {at:,} tokens, tarn's rate over llama.cpp's]({name})")
        page += ["", *(f"- {model}: {table['note']}" for model, table in races.items())]
    return page
