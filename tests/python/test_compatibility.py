"""A program for fast-transformers runs on tarn: by changed imports (the example)
and by install_as_fast_transformers, each in a process of its own."""

import os
import pathlib
import re
import subprocess
import sys
import textwrap

import pytest
import torch

from tarn import causal_product
from tarn.attention.causal_linear_attention import causal_linear
from tarn.feature_maps.fourier_features import orthogonal_random_matrix_

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "fast_transformers_program.py"


def run(*command):
    done = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        timeout=960,
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


@pytest.mark.parametrize("sizes", [(5, 5), (7, 4), (4, 7), (0, 3)])
def test_causal_linear_is_the_product_with_heads_inside(sizes):
    rows, columns = sizes
    shapes = (rows, 6), (columns, 6), (columns, 3)
    heads_first = [torch.randn(2, 3, *s, dtype=torch.float64) for s in shapes]
    given = causal_linear(*(t.transpose(1, 2) for t in heads_first))
    torch.testing.assert_close(given.transpose(1, 2), quadratic(*heads_first))


@pytest.mark.parametrize("sizes", [(6, 15), (5, 3), (1, 4)])
def test_orthogonal_random_matrix(sizes):
    """Columns of a block are orthogonal, but not of one length; the generator
    of torch decides, so that a seed repeats the draw."""
    rows, columns = sizes
    torch.manual_seed(4)
    w = torch.zeros(rows, columns, requires_grad=True)
    assert orthogonal_random_matrix_(w) is None
    first = w.detach().clone()
    for start in range(0, columns, rows):
        block = first[:, start : start + rows].double()
        gram = block.t() @ block
        off = gram - torch.diag(gram.diagonal())
        assert off.abs().max() < 1e-4 and (gram.diagonal() > 0).all()
    orthogonal_random_matrix_(w)
    assert not torch.equal(w, first)
    torch.manual_seed(4)
    orthogonal_random_matrix_(w)
    assert torch.equal(w, first)
    with pytest.raises(ValueError, match="2 axes"):
        orthogonal_random_matrix_(torch.zeros(3))


def test_every_test_of_the_defects_exists():
    """The numbered table of docs/migration.md, which tests cite by number."""
    page = (ROOT / "docs" / "migration.md").read_text()
    rows = re.findall(r"^\| (\d+) \|.*\| (.*) \|$", page, re.M)
    assert [int(number) for number, _ in rows] == list(range(1, 16))
    for number, cell in rows:
        names = re.findall(r"`(test_\w+\.py)::(test_\w+)`", cell)
        assert names, f"defect {number} has no test"
        for file, test in names:
            text = (ROOT / "tests" / "python" / file).read_text()
            assert re.search(rf"^def {test}\(", text, re.M), f"{file}::{test}"
