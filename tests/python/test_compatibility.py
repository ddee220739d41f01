"""A program for fast-transformers runs on tarn: by changed imports (the example)
and by install_as_fast_transformers, each in a process of its own."""

import os
import pathlib
import subprocess
import sys
import textwrap

import pytest
import torch

from tarn import causal_product

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "fast_transformers_program.py"


def run(*command):
    done = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def example():
    return run(str(EXAMPLE))


def test_example(example):
    for line in (
        "loss below a tenth: True",
        "recurrent equals batch: True",
        "continued: [0, 2, 4, 6, 1, 3, 5, 0, 2, 4, 6",
        "attention matrices: 2, shape (2, 4, 24, 24)",
        "padding unread: True",
        "decoded: (2, 5, 32)",
    ):
        assert line in example


def test_example_unedited(example, tmp_path):
    """The very program with its import lines as they were."""
    source = EXAMPLE.read_text()
    original = source.replace("from tarn", "from fast_transformers")
    assert "tarn" not in original.replace("start", "").split('"""')[2]
    path = tmp_path / "program.py"
    path.write_text(original)
    prelude = (
        "import tarn, runpy, sys; tarn.install_as_fast_transformers(); "
        f"runpy.run_path({str(path)!r}, run_name='__main__')"
    )
    assert run("-c", prelude) == example


def test_install_registers_every_module():
    out = run(
        "-c",
        textwrap.dedent(
            """
            import tarn
            tarn.install_as_fast_transformers()
            tarn.install_as_fast_transformers()
            import fast_transformers
            import fast_transformers.builders
            import fast_transformers.attention.improved_clustered_causal_attention as deep
            import fast_transformers.recurrent.attention.cross_attention.linear_attention
            from fast_transformers.attention import AttentionLayer, FullAttention
            from fast_transformers.attention_registry import AttentionRegistry, Int, Optional
            from fast_transformers.causal_product import CausalDotProduct, causal_dot_product
            from fast_transformers.events import AttentionEvent, EventDispatcher
            from fast_transformers.events.filters import layer_name_contains
            from fast_transformers.feature_maps import Favor, elu_feature_map
            from fast_transformers.feature_maps.base import ActivationFunctionFeatureMap
            from fast_transformers.masking import FullMask, LengthMask, TriangularCausalMask
            from fast_transformers.recurrent.transformers import RecurrentTransformerEncoder
            from fast_transformers.transformers import TransformerEncoder
            from fast_transformers.utils import make_mirror
            import fast_transformers.weight_mapper
            import tarn.attention, tarn.builders
            assert AttentionLayer is tarn.attention.AttentionLayer
            assert fast_transformers.builders is tarn.builders
            assert fast_transformers.builders.TransformerEncoderBuilder().n_layers == 4
            try:
                import fast_transformers.aggregate
            except ImportError as error:
                print(error)
            """
        ),
    )
    assert "aggregate" in out


def test_install_refuses_to_mix(tmp_path):
    package = tmp_path / "fast_transformers.py"
    package.write_text("")
    out = run(
        "-c",
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import fast_transformers, tarn\n"
        "try:\n    tarn.install_as_fast_transformers()\n"
        "except ImportError as error:\n    print(error)",
    )
    assert "before fast_transformers is imported" in out


def quadratic(q, k, v):
    scores = torch.einsum("nhle,nhse->nhls", q, k).tril()
    return torch.einsum("nhls,nhsm->nhlm", scores, v)


@pytest.mark.parametrize("sizes", [(5, 5), (7, 4), (4, 7), (1, 1), (0, 3), (3, 0)])
def test_causal_product_and_its_gradient(sizes):
    rows, columns = sizes
    shapes = (rows, 6), (columns, 6), (columns, 3)
    inputs = [torch.randn(2, 3, *s, dtype=torch.float64, requires_grad=True) for s in shapes]
    wanted = quadratic(*inputs)
    grad = torch.randn_like(wanted)
    gradients = torch.autograd.grad(wanted, inputs, grad, allow_unused=True)
    single = [t.detach().float().requires_grad_() for t in inputs]
    for product in (causal_product.causal_dot_product, causal_product.CausalDotProduct.apply):
        given = product(*single)
        torch.testing.assert_close(given, wanted.float(), atol=1e-5, rtol=1e-5)
        found = torch.autograd.grad(given, single, grad.float(), allow_unused=True)
        for one, other in zip(found, gradients):
            torch.testing.assert_close(one, other.float(), atol=1e-5, rtol=1e-5)


def test_causal_product_by_name():
    """forward and backward called as a package around the class would."""

    class Around(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q, k, v):
            return causal_product.CausalDotProduct.forward(ctx, q, k, v)

        @staticmethod
        def backward(ctx, grad):
            return causal_product.CausalDotProduct.backward(ctx, grad)

    inputs = [torch.randn(1, 2, 5, 4, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    assert torch.autograd.gradcheck(Around.apply, inputs)
