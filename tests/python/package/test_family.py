"""The table of docs/family.md: which test covers which form of which kind.

A cell is a test of tests/python (collected in the same run), a GoogleTest (listed
by its program), or a refusal, which is provoked here and cited. The table is written
by `python tests/python/package/test_family.py`; the tests compare.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

import pytest

import tarn
from tarn import _tables as tables
from tarn import attention, models
from tarn.builders import RecurrentAttentionBuilder

_HERE = pathlib.Path(__file__).resolve().parent
_PAGE = _HERE.parents[2] / "docs" / "family.md"
_BEGIN, _END = "<!-- table: begin -->", "<!-- table: end -->"
_BUILD = pathlib.Path(
    os.environ.get("TARN_BUILD_DIR")
    or pathlib.Path(os.environ.get("TARN_LIBRARY", _HERE.parents[2] / "build" / "x")).parent
)
_COLUMNS = (
    "forward", "gradient", "masks", "recurrent", "prefill", "C++ module", "Python module", "runtime",
)  # fmt: skip


class Cpp(str):
    """program: Suite.Test of a GoogleTest program of src/torch_nn or src/mixers."""


class Refused:
    """A call that must raise; its message is the cell."""

    def __init__(self, call):
        self.call = call

    def reason(self):
        with pytest.raises((ValueError, RuntimeError)) as error:
            self.call()
        return str(error.value)


def _recurrent(kind):
    return Refused(lambda: RecurrentAttentionBuilder.from_kwargs().get(kind))


def _runtime(kind, **keys):
    """A model of this kind, opened by the lean runtime."""

    def call():
        from tarn import runtime

        config = dict(vocab_size=256, d_model=16, n_layers=1, n_heads=2, d_ff=16)
        arch = (
            {}
            if kind not in ("clustered", "improved-clustered")
            else dict(arch="encoder", n_classes=2)
        )
        model = models.make_model(config, attention=kind, **arch, **keys)
        with tempfile.TemporaryDirectory() as folder:
            tarn.save_model(model, folder)
            runtime.Model(folder)

    return Refused(call)


_SOFTMAX = "test_softmax_attention.py::test_equals_the_definition[dtype1-{mask}-{kind}]"
_STEPS = "test_recurrent.py::test_steps_prefill_and_batch_agree[{kind}-post]"
_RAGGED = "test_recurrent.py::test_ragged_prefill_leaves_each_sequence_at_its_length[{kind}]"
_SHELL = "test_attention_modules.py::test_shapes_and_defaults[{kind}]"
_LEAK = "test_attention_modules.py::test_padding_never_leaks[{kind}]"
_WHOLE = Cpp("torch_test: Model.EqualsPlainModel")
_AFT_RUNTIME = Cpp("aft_simple_runtime_test: AftRuntimeTest.MixIsTheDefinitionForEverySegment")
_HASHED = Cpp("torch_test: Model.HashingKindsAreDeterministicInEvalAndHaveNoRecurrentForm")


def _softmax(kind, step, runtime):
    return [
        _SOFTMAX.format(mask="none", kind=kind),
        f"test_softmax_attention.py::test_gradients_equal_those_of_the_definition[everything-{kind}]",
        _SOFTMAX.format(mask="causal", kind=kind),
        _STEPS.format(kind=step),
        _RAGGED.format(kind=step),
        _WHOLE,
        _SHELL.format(kind=kind),
        runtime,
    ]


def _linear(name, gradient, runtime):
    return [
        f"test_ops_mapped_attention.py::test_matches_the_definition[{name}-plain]",
        gradient,
        f"test_ops_mapped_attention.py::test_matches_the_definition[{name}-mask]",
        _STEPS.format(kind=f"linear-{name}"),
        _RAGGED.format(kind=f"linear-{name}"),
        _WHOLE,
        f"test_feature_map_modules.py::test_widths_copies_and_gradients[{name}]",
        runtime,
    ]


def _rows():
    mapped = "test_ops_mapped_attention.py::test_gradcheck[{}]"
    maps = "test_ops_feature_maps.py::test_gradcheck[{}]"
    lean = "test_models.py::test_runtime_gives_the_same_logits[{}]"
    clustered = dict(clusters=2)
    yield "full", _softmax("full", "full", lean.format("full-post-relu"))
    local = "test_hybrid_models.py::test_runtime_gives_the_same_logits[local-5-rms-swiglu]"
    yield "local", _softmax("local", "local-5", local)
    yield "exact-topk", _softmax("exact-topk", "exact-topk-3", _runtime("exact-topk"))
    yield (
        "conditional-full",
        [
            "test_golden.py::test_attention[conditional512_full]",
            "test_attention_modules.py::test_conditional_full_gradcheck[conditional-full-above]",
            _LEAK.format(kind="conditional-full-above"),
            _recurrent("conditional-full"),
            _recurrent("conditional-full"),
            _WHOLE,
            "test_builders.py::test_conditional_full_hands_on_the_dispatcher",
            _runtime("conditional-full"),
        ],
    )
    gradients = {
        "elu1": "test_linear_attention_torch.py::test_gradcheck_float64[causal]",
        "relu": mapped.format("relu-options0"),
        "relu2": mapped.format("relu2-options1"),
        "softplus": "test_feature_map_modules.py::test_widths_copies_and_gradients[softplus]",
        "poly2": mapped.format("poly2-options2"),
        "favor": mapped.format("favor-options3"),
        "favor-positive": maps.format("favor-positive"),
        "rff": maps.format("rff"),
        "smoothed-rff": mapped.format("smoothed-rff-options5"),
        "grf": maps.format("grf"),
    }
    for name, gradient in gradients.items():
        pure = name in ("elu1", "relu", "relu2", "softplus", "poly2")
        runtime = lean.format(name) if pure else _runtime("linear", feature_map=name)
        yield f"linear, {name}", _linear(name, gradient, runtime)
    for kind, short in (
        ("clustered", "clustered"),
        ("improved-clustered", "improved"),
        ("causal-improved-clustered", "causal-improved"),
    ):
        tests = "test_ops_clustered.py::test_{}-" + short + "]"
        module = {
            "clustered": attention.ClusteredAttention,
            "improved-clustered": attention.ImprovedClusteredAttention,
        }.get(kind)
        yield (
            kind,
            [
                tests.format("is_its_definition[dtype1-5e-06"),
                tests.format("gradcheck[0.0"),
                _LEAK.format(kind=kind)
                if module
                else tests.format("padding_and_batch_mates_do_not_matter[dtype1"),
                _recurrent(kind),
                _recurrent(kind),
                _HASHED,
                _SHELL.format(kind=kind),
                _runtime(kind, **clustered),
            ],
        )
    yield (
        "reformer",
        [
            "test_ops_reformer.py::test_is_its_definition[{}-none]",
            "test_ops_reformer.py::test_gradcheck[{}]",
            "test_ops_reformer.py::test_is_its_definition[{}-all]",
            _recurrent("reformer"),
            _recurrent("reformer"),
            _HASHED,
            _SHELL.format(kind="reformer"),
            _runtime("reformer"),
        ],
    )
    for kind, short, step, gradient in (
        ("aft-full", "full", "aft-full-20-3", "gradcheck_full[1.0]"),
        ("aft-simple", "simple", "aft-simple", "gradcheck_simple[True-0]"),
    ):
        yield (
            kind,
            [
                f"test_ops_aft.py::test_{short}_is_its_definition[dtype1-2e-06-none]",
                f"test_ops_aft.py::test_{gradient}",
                f"test_ops_aft.py::test_{short}_is_its_definition[dtype1-2e-06-both]",
                _STEPS.format(kind=step),
                _RAGGED.format(kind=step),
                _WHOLE,
                _SHELL.format(kind=kind),
                _runtime(kind) if kind == "aft-full" else _AFT_RUNTIME,
            ],
        )
    yield from _gated()


def _gated():
    """The mixers with a decaying state, by the table, and the hybrids' softmax."""
    steps = "test_nn_steps.py::test_an_attention_in_pieces_is_the_whole[{}-6]"
    for kind, row in tables.mixers().items():
        if (
            row["family"] not in ("gated", "rwkv", "mamba", "short_conv", "lru", "mlstm")
            and kind != "gated-full"
        ):
            continue
        shell = f"{kind}-8" if row["family"] == "rwkv" else kind
        yield (
            kind,
            [
                Cpp("torch_test: Gated.EqualsLoops"),
                Cpp("torch_test: Gated.GradientEqualsThatOfLoops"),
                Cpp("torch_test: Gated.MaskedTokensHaveNoInfluence"),
                steps.format(kind),
                f"test_gated_mixers.py::test_lengths_leave_padding_out[{kind}]",
                _WHOLE,
                f"test_both_shells.py::test_same_weights_same_logits[lm-decoder-{shell}]",
                f"test_hybrid_models.py::test_runtime_gives_the_same_logits[{kind}-rms-swiglu]",
            ],
        )


def _source_of(test):
    """The file below the repository that holds a test."""
    if not isinstance(test, Cpp):
        (found,) = _HERE.parent.rglob(test.split("::")[0])
        return found.relative_to(_PAGE.parents[1]).as_posix()
    suite, case = test.split(": ")[1].split(".")
    written = re.compile(rf"TEST(_F|_P)?\({suite}, {case}\)")
    root = _PAGE.parents[1]
    (found,) = [
        path
        for folder in ("src/torch_nn", "src/mixers")
        for path in (root / folder).rglob("*_test.cc")
        if written.search(path.read_text())
    ]
    return found.relative_to(root).as_posix()


def table():
    """The table, with a tick or a dash per cell, then what each of them refers to."""
    lines = ["| kind | " + " | ".join(_COLUMNS) + " |", "|---" * (len(_COLUMNS) + 1) + "|"]
    tests, refusals = {}, {}
    for kind, cells in _rows():
        assert len(cells) == len(_COLUMNS)
        texts = []
        for cell in cells:
            if isinstance(cell, Refused):
                words = re.sub(r"/\S*/", "", " ".join(cell.reason().split()))
                texts.append(f"— {refusals.setdefault(words, len(refusals) + 1)}")
            else:
                texts.append(f"[✓][{tests.setdefault(cell, len(tests) + 1)}]")
        lines.append(f"| **{kind}** | " + " | ".join(texts) + " |")
    lines += ["", "The error messages for the dashes:", ""]
    lines += [f"{number}. {words}" for words, number in refusals.items()]
    lines += [""]
    lines += [f'[{n}]: ../{_source_of(test)} "{test}"' for test, n in tests.items()]
    return "\n".join(lines)


def _page_table(page):
    return page.split(_BEGIN)[1].split(_END)[0].strip()


def test_the_page_is_current():
    """Every refusal raises, with the words on the page."""
    assert _PAGE.is_file(), "python tests/python/package/test_family.py writes the page"
    assert _page_table(_PAGE.read_text()) == table()


def test_every_test_of_the_table_exists(request):
    collected = {item.nodeid.rsplit("/", 1)[-1] for item in request.session.items}
    files = {name.split("::")[0] for name in collected}
    named = {str(c) for _, cells in _rows() for c in cells if isinstance(c, str)}
    wanted = {name for name in named if "::" in name}
    if not {name.split("::")[0] for name in wanted} <= files:
        pytest.skip("only a part of the tests was collected")
    assert wanted - collected == set()


def test_every_googletest_of_the_table_exists():
    named = {c for _, cells in _rows() for c in cells if isinstance(c, Cpp)}
    for name in sorted(named):
        program, test = name.split(": ")
        path = _BUILD / program
        if not path.is_file():
            pytest.skip(f"{program} is not built next to the library")
        suite, case = test.split(".")
        done = subprocess.run([path, "--gtest_list_tests"], capture_output=True, text=True)
        listed = done.stdout.split(f"\n{suite}.\n")
        assert len(listed) == 2 and re.search(rf"^  {case}$", listed[1], re.M), name


if __name__ == "__main__":
    intro = _PAGE.read_text().partition(_BEGIN)[0]  # people write what is before the table
    _PAGE.write_text(intro + _BEGIN + "\n" + table() + "\n" + _END + "\n")
    print(_PAGE, file=sys.stderr)
