"""Every type of published model, by every way in which tarn runs it, against the classes that
define it: random small models with all options, three or more of each type, whose differences
become docs/models-supported.md. The page is written by
`python tests/python/runtime/test_models_supported.py`, with `texts` without measuring again;
the tests compare.

The bounds of the page are powers of ten with room above what was measured, so that another
processor's last bits change nothing: a test fails where a difference is above the bound that
the page gives, and all are within BOUNDS of published_ways.py.
"""

import importlib
import json
import pathlib
import re
import sys

import numpy as np
import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "flash_linear")]
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
runtime = pytest.importorskip("tarn.runtime", exc_type=ImportError)
pytest.importorskip("tarn")
published = importlib.import_module("published")
ways = importlib.import_module("published_ways")
published_fla = importlib.import_module("published_fla")
package = importlib.import_module("test_fla_package")
accelerated = importlib.import_module("test_transformers_models")

DOCS = HERE.parents[2] / "docs"
PAGE = DOCS / "models-supported.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
MODELS_OF_A_TYPE = 3
ROOM = 5  # of the page's bounds above what was measured

# Published models of a type, most used first.
EXAMPLES = {
    "llama": "Llama 2 and 3, TinyLlama, SmolLM2, Yi",
    "mistral": "Mistral 7B, Mistral Nemo, Zephyr",
    "qwen2": "Qwen 2 and 2.5, QwQ, DeepSeek-R1-Distill-Qwen",
    "qwen3": "Qwen 3, 0.6B to 32B",
    "qwen3_moe": "Qwen3-30B-A3B, Qwen3-Coder",
    "phi3": "Phi-3 mini 4k, Phi-4",
    "smollm3": "SmolLM3",
    "olmo2": "OLMo 2",
    "olmo3": "OLMo 3",
    "gemma3_text": "Gemma 3, 270M to 27B",
    "gpt_neox": "Pythia, GPT-NeoX",
    "gpt2": "GPT-2, DistilGPT-2, Cerebras-GPT",
    "qwen3_next": "Qwen3-Next-80B-A3B",
    "qwen3_5_text": "Qwen3.5, dense",
    "qwen3_5_moe_text": "Qwen3.5 with experts",
    "olmo_hybrid": "OLMo Hybrid",
    "kimi_linear": "Kimi-Linear-48B-A3B",
    "minimax": "MiniMax-Text-01",
    "lfm2": "LFM2, 350M to 2.6B",
    "lfm2_moe": "LFM2-8B-A1B",
    "lfm3": "LFM3-1.7B",
    "recurrent_gemma": "RecurrentGemma 2B and 9B",
    "xlstm": "xLSTM-7B",
    "mamba": "Mamba, 130M to 2.8B",
    "falcon_mamba": "Falcon-Mamba 7B",
    "mamba2": "Mamba-2, Codestral Mamba",
    "granitemoehybrid": "Granite 4 Micro, Tiny and Small",
    "falcon_h1": "Falcon-H1, 0.5B to 34B",
    "bamba": "Bamba 9B",
    "jamba": "Jamba 1.5, Jamba Reasoning",
    "nemotron_h": "Nemotron-H, Nemotron Nano 2 and 3",
    "gated_deltanet": "models trained with the package",
    "delta_net": "DeltaNet 1.3B",
    "kda": "models trained with the package",
    "gla": "GLA 1.3B and 2.7B",
    "retnet": "RetNet 1.3B and 2.7B",
    "hgrn2": "HGRN2 1.3B",
    "linear_attn": "models trained with the package",
    "rwkv7": "RWKV-7 Goose",
    "rwkv6": "RWKV-6 Finch",
}
# A model that also reads pictures -> its text model, which tarn opens.
WRAPPERS = {"gemma3": "gemma3_text", "qwen3_5": "qwen3_5_text", "qwen3_5_moe": "qwen3_5_moe_text"}


def transformers_cases():
    """(type, options, seed), types with few sets of options again with another seed."""
    found = {}
    for file in sorted(HERE.glob("test_published_*.py")):
        for kind, keys in getattr(importlib.import_module(file.stem), "CASES", []):
            found.setdefault(kind, []).append(keys)
    cases = []
    for kind, sets in found.items():
        for index in range(max(MODELS_OF_A_TYPE, len(sets))):
            cases.append((kind, sets[index % len(sets)], index // len(sets)))
    return cases


CASES = transformers_cases()
measured = {}  # a type -> what each of its models differed by


def named(cases):
    return [f"{case[0]}-{index}" for index, case in enumerate(cases)]


def keep(kind, found):
    """Of a model: within the bounds, and a part of its row."""
    for way, numbers in found.items():
        for name, bound in ways.BOUNDS.items():
            assert numbers.get(name, 0.0) <= bound, (way, name, numbers)
    measured.setdefault(kind, []).append(found)


@pytest.mark.parametrize(("kind", "keys", "seed"), CASES, ids=named(CASES))
def test_a_model_of_transformers(kind, keys, seed, tmp_path):
    keep(kind, ways.differences_of(kind, published.random_model(kind, keys, seed), tmp_path))


@pytest.fixture(scope="module")
def fla_models(tmp_path_factory):
    """What the package wrote, and logits of what tarn exported: a folder, and for each of its
    models the differences of tarn's ways, None where one failed."""
    folder = tmp_path_factory.mktemp("published_fla")
    found = {}
    for _ in range(2):  # the second time it reads the exported models
        done = package.program(package.FOLDER / "published_fla.py", folder)
        assert done.returncode == 0, done.stderr
        for name in published_fla.NAMES if not found else ():
            at = folder / name
            wanted = np.load(at / "logits.npy")
            kind = json.loads((at / "theirs" / "config.json").read_text())["model_type"]
            own = ways.own_differences(at / "theirs", wanted, at / "gradients", at / "ours")
            assert ways.export(kind, at / "ours", at / "back")
            found[name] = kind, wanted, own
    return folder, found


@package.installed
@pytest.mark.parametrize("name", published_fla.NAMES)
def test_a_model_of_flash_linear_attention(name, fla_models):
    folder, found = fla_models
    kind, wanted, own = found[name]
    back = np.load(folder / name / "back" / "logits.npy")
    keep(kind, own | {"export": ways.difference(back, wanted)})


def descriptions():
    """A type -> (what it is, limits), as published-models.md tells them."""
    found = {}
    for line in (DOCS / "published-models.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and cells[0].startswith("`") and cells[2] != "limits":
            for kind in re.findall("`(.+?)`", cells[0]):
                found[kind] = cells[1:]
    return found


COLUMNS = (
    ("rms", False), ("max", False), ("KL", False), ("gradients", False), ("a gradient", False),
    ("max", True),  # of what is exported
)  # fmt: skip


def columns(kind):
    """The worst differences of a row; None of a type that is not exported."""

    def worst(name, of_export):
        every = [
            numbers.get(name, 0.0)
            for model in measured[kind]
            for way, numbers in model.items()
            if (way == "export") == of_export
        ]
        return max(every, default=None)

    return [worst(name, of_export) for name, of_export in COLUMNS]


def bounds_of(kind):
    """Powers of ten well above the differences, or the bounds of all types."""
    found = []
    for value, (name, _) in zip(columns(kind), COLUMNS, strict=True):
        if value is None:
            found.append("no")
            continue
        power = int(np.ceil(np.log10(ROOM * value))) if value > 0 else None
        most = ways.BOUNDS[name]
        bound = 0 if power is None else min(float(f"1e{power}"), most)
        found.append(f"{bound:.0e}".replace("e-0", "e-") if bound else "0")
    return found


def row(kind, count, bounds):
    of_class = "no"
    if kind.removesuffix("_text") in accelerated.MODELS:
        of_class = "`accelerate_transformers`"
    if kind in package.MODELS and kind not in accelerated.MODELS:
        of_class = "`install_as_fla`"
    limits = descriptions()[kind][1]
    names = ", ".join(
        f"`{name}`" for name in [kind, *(w for w, t in WRAPPERS.items() if t == kind)]
    )
    cells = [names, EXAMPLES[kind], str(count), *bounds, of_class, limits]
    return "| " + " | ".join(cells) + " |"


HEAD = [
    "| `model_type` | published models | random models | rms | any logit | KL | gradients "
    "| a tensor's gradient | exported logits | kernels for the class | limits |",
    "|" + "---|" * 11,
]


def page_rows():
    """A type -> its line, the number of its models, its bounds."""
    text = PAGE.read_text()
    lines = text[text.index(BEGIN) : text.index(END)].splitlines()[1:]
    assert lines[:2] == HEAD
    found = {}
    for line in filter(None, lines[2:]):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        found[re.match("`(.+?)`", cells[0]).group(1)] = line, int(cells[2]), cells[3:9]
    return found


WRITE = "python tests/python/runtime/test_models_supported.py writes the page"


def test_every_type_has_a_row():
    rows = page_rows()
    assert {kind for kind, _, _ in CASES} | set(descriptions()) == set(rows) | set(WRAPPERS)
    assert set(EXAMPLES) == set(rows), WRITE
    for kind in {kind for kind, _, _ in CASES}:
        assert rows[kind][1] == sum(case[0] == kind for case in CASES), WRITE


@pytest.mark.parametrize("kind", EXAMPLES)
def test_the_page_is_current(kind):
    """Its bounds are those of the types that this run measured whole."""
    line, count, bounds = page_rows()[kind]
    assert line == row(kind, count, bounds), WRITE
    if len(measured.get(kind, ())) != count:
        pytest.skip("not all of its models were run")
    for value, bound in zip(columns(kind), bounds, strict=True):
        assert (value is None) == (bound == "no"), (kind, columns(kind), bounds)
        assert value is None or value <= float(bound), (kind, columns(kind), bounds)


class Writer:
    """Writes the table; types that were not measured, for the package is not installed or
    nothing was, keep their numbers."""

    def pytest_sessionfinish(self, exitstatus):
        if exitstatus in (0, pytest.ExitCode.NO_TESTS_COLLECTED):
            module = sys.modules[pathlib.Path(__file__).stem]  # the one that pytest imported
            PAGE.write_text(module.page())


def page():
    before, lines = page_rows(), []
    for kind in EXAMPLES:
        if kind in measured:
            lines.append(row(kind, len(measured[kind]), bounds_of(kind)))
        elif kind in before:  # else it is a type that has never been measured
            lines.append(row(kind, *before[kind][1:]))
    intro = PAGE.read_text().partition(BEGIN)[0]  # people write what is before the table
    return "\n".join([intro + BEGIN, *HEAD, *lines, END, ""])


if __name__ == "__main__":
    what = "nothing" if "texts" in sys.argv else "test_a_model_of"
    options = ["-q", "-p", "no:cacheprovider", "-k", what]
    sys.exit(pytest.main([__file__, *options], plugins=[Writer()]))
