"""docs/benchmarks/quality.md and the tables of docs/quantisation.md, from the results of
bench/quality.py: what the ways of quantising cost, next to llama.cpp's, and which targets
are met."""

from quality_models import ROOT

PAGE = ROOT / "docs" / "benchmarks" / "quality.md"
GUIDE = ROOT / "docs" / "quantisation.md"
BEGIN = "<!-- tables: bench/quality.py --page writes them -->"
END = "<!-- end of tables -->"
SHOWN = "small"  # the size in the documents
# Most bits per byte that a way may add, and the aim. Group sizes and arithmetic are the
# defaults.
BOUNDS = {
    "int8": (0.001, 0.0005),
    "int8, calibrated": (0.001, 0.0005),
    "int4": (0.03, 0.02),
    "int4, calibrated": (0.015, 0.008),
}
# llama.cpp's type, and tarn's way with which it is compared.
RIVALS = (
    ("Q8_0", "int8"),
    ("Q8_0", "int8 in groups of 32"),
    ("Q4_0, ends Q8_0", "int4"),
    ("Q4_K_M", "int4 in groups of 64, calibrated"),
    ("Q4_K_M, ends Q8_0", "int4 in groups of 64, calibrated"),
)
_HOW = """\
`bench/quality.py` trains the models, measures them and writes this page;
[bench/README.md](../../bench/README.md) explains the method. Each text is read in windows of
{window:,} bytes from an empty state; its first {bytes:,} bytes are measured. *added*: bits per
byte above those of the float32 model, of the text with the largest change, and its standard
error over the windows. *divergence*: the mean KL divergence of the float32 model's
distributions from these, over all texts, in thousandths of a bit per byte. *weights alone*: the
same without rounding of the inputs of products (`--exact`; for files of llama.cpp, as tarn
reads them). Both programs round inputs to 8 bits: in the groups of the weights, K types in
groups of 256, which is most of what 8 bits cost and little of what 4 bits do. *bits*: of a
weight, all tensors counted.
""".splitlines()


def _ways(model):
    """((side, way), facts) of all that were measured."""
    for side in ("tarn", "llama.cpp"):
        for way, facts in model.get(side, {}).items():
            yield (side, way), facts


def divergence(run):
    return sum(run["kl"].values()) / len(run["kl"])


def _added(run):
    """The largest change, as +0.0012, and its standard error."""
    text = max(run["added"], key=run["added"].get)
    added = round(run["added"][text], 4) + 0.0  # no -0
    return f"{added:+.4f}", f"{run['error'][text]:.4f}"


def _thousandths(run):
    return f"{1000 * divergence(run):.3g}"


def model_table(model):
    """All ways of one model."""
    yield (
        "| weights | bits | added | error | divergence | weights alone: added | divergence |"
        "\n|---|---|---|---|---|---|---|"
    )
    for (side, way), facts in _ways(model):
        name = f"llama.cpp {way}" if side == "llama.cpp" else way
        cells = [name, f"{facts['bits_per_weight']:.2f}", *_added(facts["run"])]
        cells.append(_thousandths(facts["run"]))
        exact = facts.get("exact")
        cells += [_added(exact)[0], _thousandths(exact)] if exact else ["", ""]
        yield "| " + " | ".join(cells) + " |"


def short_table(of):
    """The largest change of each way of tarn, by models."""
    names = list(of["models"])
    yield "| weights | " + " | ".join(names) + " |"
    yield "|---|" + "---|" * len(names)
    ways = {way: None for model in of["models"].values() for way in model.get("tarn", {})}
    for way in ways:
        found = (of["models"][name].get("tarn", {}).get(way) for name in names)
        cells = [_added(one["run"])[0] if one else "" for one in found]
        yield f"| {way} | " + " | ".join(cells) + " |"


def _pair(model, ours, theirs):
    """tarn's facts and llama.cpp's; empty where one was not measured."""
    pair = model.get("tarn", {}).get(ours), model.get("llama.cpp", {}).get(theirs)
    return pair if all(pair) else ()


def rival_table(of):
    """Bits of a weight and divergence of the ways of RIVALS, tarn's next to llama.cpp's."""
    names = [name for name, model in of["models"].items() if "llama.cpp" in model]
    yield "| tarn / llama.cpp | " + " | ".join(names) + " |"
    yield "|---|" + "---|" * len(names)
    for theirs, ours in RIVALS:
        cells = []
        for name in names:
            pair = _pair(of["models"][name], ours, theirs)
            bits = " / ".join(f"{one['bits_per_weight']:.2f}" for one in pair)
            apart = " / ".join(_thousandths(one["run"]) for one in pair)
            cells.append(f"{bits}: {apart}" if pair else "")
        yield f"| {ours} / {theirs} | " + " | ".join(cells) + " |"


def targets(of):
    """(measure, value, bound, aim) of each way, the worst of all models and texts."""
    for way, (most, aim) in BOUNDS.items():
        ways = (model.get("tarn", {}).get(way) for model in of["models"].values())
        found = [one["run"]["worst"] for one in ways if one]
        yield f"{way}: bits per byte added", max(found), most, aim


def rivals(of):
    """(text, (tarn's facts, llama.cpp's)) of each model."""
    for theirs, ours in RIVALS:
        for name, model in of["models"].items():
            pair = _pair(model, ours, theirs)
            if pair:
                yield f"{name}: {ours} against {theirs}", pair


def _rival_line(name, pair):
    added = " / ".join(_added(one["run"])[0] for one in pair)
    ours, theirs = (divergence(one["run"]) for one in pair)
    bits = pair[0]["bits_per_weight"] / pair[1]["bits_per_weight"]
    return f"| {name} | {added} | {ours / theirs:.2f}x | {bits:.2f}x |"


def _met(value, most, aim):
    return "yes" if value <= aim else "yes, the aim is missed" if value <= most else "**no**"


def page(of):
    """Lines of docs/benchmarks/quality.md."""
    yield "# Quality of quantised weights\n"
    yield "\n".join(_HOW).format(window=of["window"], bytes=of["held_out_bytes"]) + "\n"
    training = of["training"]
    yield (
        f"Models: updates of {training['batch']} x {training['seq_len']} bytes of text. "
        f"Peer: {of.get('llama.cpp', 'none')}, without an importance matrix; its keys and "
        "values are float32.\n"
    )
    yield "## Targets\n"
    yield "| measure | most | aim | measured | met |\n|---|---|---|---|---|"
    for name, value, most, aim in targets(of):
        yield f"| {name} | {most} | {aim} | {value:.5f} | {_met(value, most, aim)} |"
    yield "\n| tarn against llama.cpp | added | divergence | bits |\n|---|---|---|---|"
    for name, pair in rivals(of):
        yield _rival_line(name, pair)
    for name, model in of["models"].items():
        texts = ", ".join(f"{text} {bits:.4f}" for text, bits in model["float32"].items())
        yield f"\n## {name}\n"
        yield (
            f"{model['parameters']:,} parameters, {model['steps']:,} updates; float32, "
            f"bits per byte: {texts}.\n"
        )
        yield from model_table(model)
        types = _types(model)
        if types:
            yield f"\nTypes of the files: {types}."


def _types(model):
    """What llama.cpp's files hold, by share of the weights."""
    parts = []
    for way, facts in model.get("llama.cpp", {}).items():
        total = sum(facts["types"].values())
        shares = sorted(facts["types"].items(), key=lambda one: -one[1])
        text = ", ".join(f"{100 * count / total:.3g} % {name}" for name, count in shares)
        parts.append(f"{way}: {text}")
    return "; ".join(parts)


def guide(of):
    """Lines of the tables of docs/quantisation.md."""
    yield BEGIN
    yield from short_table(of)
    yield ""
    yield from rival_table(of)
    yield END


def _replaced(text, lines):
    before, _, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"{GUIDE}: want {BEGIN} and {END}")
    return before + "\n".join(lines) + after


def texts(results, old):
    """{path: text} of what is written. old: the text of docs/quantisation.md."""
    of = results["sizes"][SHOWN]
    return {PAGE: "\n".join(page(of)) + "\n", GUIDE: _replaced(old, guide(of))}


def write(results):
    for path, text in texts(results, GUIDE.read_text("utf-8")).items():
        path.write_text(text, "utf-8")
