"""A program for fast-transformers runs on tarn: by changed imports (the example)
and by install_as_fast_transformers, each in a separate process."""

import json
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
from tarn.causal_product import causal_product_cpu
from tarn.feature_maps.fourier_features import orthogonal_random_matrix_

ROOT = pathlib.Path(__file__).resolve().parents[3]
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
    """The same program with its original import lines."""
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
            from fast_transformers.causal_product.causal_product_cpu import (
                causal_dot_backward, causal_dot_product as written
            )
            assert fast_transformers.causal_product.causal_dot_product_cpu is written
            assert fast_transformers.causal_product.causal_dot_product_cuda is None
            print("done")
            """
        ),
    )
    assert out == "done\n"


PARTS_LEFT_OUT = {
    "aggregate": "tarn.ops.clustered_attention",
    "clustering": "tarn.ops.clustered_attention",
    "clustering.hamming": "tarn.ops.clustered_attention",
    "hashing": "reformer_attention",
    "hashing.hash_cpu": "reformer_attention",
    "local_product.local_product_cpu": "tarn.ops.local_attention",
    "sparse_product": "tarn.ops.improved_clustered_attention",
    "causal_product.causal_product_cuda": "causal_product_cpu",
}


@pytest.fixture(scope="module")
def imported():
    """What each import of a part prints, in one process: {part: three lines}."""
    out = run(
        "-c",
        textwrap.dedent(
            f"""
            import importlib, json, tarn
            tarn.install_as_fast_transformers()
            said = {{}}
            for part in {list(PARTS_LEFT_OUT)}:
                lines = said[part] = []
                for name in (f"fast_transformers.{{part}}", "fast_transformers.none"):
                    try:
                        importlib.import_module(name)
                    except ModuleNotFoundError as error:
                        lines.append(f"{{error.name}} {{error}}")
                stem, _, leaf = f"fast_transformers.{{part}}".rpartition(".")
                try:
                    exec(f"from {{stem}} import {{leaf}}")
                except ImportError as error:
                    lines.append(str(error))
            print(json.dumps(said))
            """
        ),
    )
    return json.loads(out)


@pytest.mark.parametrize("part", PARTS_LEFT_OUT)
def test_parts_left_out_say_what_to_use(imported, part):
    out, instead = imported[part], PARTS_LEFT_OUT[part]
    assert len(out) == 3 and instead in out[0] and instead in out[2], out
    assert out[1].startswith("fast_transformers.none No module named")
    assert out[1].startswith("fast_transformers.none No module named")


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
    """forward and backward are called as a package that wraps the class would."""

    class Around(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q, k, v):
            return causal_product.CausalDotProduct.forward(ctx, q, k, v)

        @staticmethod
        def backward(ctx, grad):
            return causal_product.CausalDotProduct.backward(ctx, grad)

    inputs = [torch.randn(1, 2, 5, 4, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    assert torch.autograd.gradcheck(Around.apply, inputs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sizes", [(5, 5), (7, 4), (1, 1), (0, 3)])
def test_the_compiled_module_writes_into_its_arguments(sizes, dtype):
    rows, columns = sizes
    shapes = (rows, 6), (columns, 6), (columns, 3)
    exact = [torch.randn(2, 3, *s, dtype=torch.float64, requires_grad=True) for s in shapes]
    wanted = quadratic(*exact)
    grad_out = torch.randn_like(wanted)
    gradients = torch.autograd.grad(wanted, exact, grad_out)
    tolerance = {"atol": 1e-5, "rtol": 1e-5} if dtype == torch.float32 else {}
    inputs = [tensor.detach().to(dtype).requires_grad_() for tensor in exact]
    # It is strided and holds NaN: nothing of its contents may be read.
    product = torch.full((2, rows, 3, 3), float("nan"), dtype=dtype).transpose(1, 2)
    assert causal_product_cpu.causal_dot_product(*inputs, product) is None
    torch.testing.assert_close(product, wanted.detach().to(dtype), **tolerance)
    assert not product.requires_grad
    found = [torch.full_like(tensor, float("nan")) for tensor in inputs]
    dot_backward = causal_product.CausalDotProduct.dot_backward["cpu"]
    dot_backward(*inputs, grad_out.to(dtype), *found)
    for one, other in zip(found, gradients):
        torch.testing.assert_close(one.detach(), other.to(dtype), **tolerance)
    assert all(tensor.grad is None for tensor in inputs)


def test_the_compiled_module_names_a_wrong_argument():
    q, k, v = torch.randn(1, 2, 4, 3), torch.randn(1, 2, 4, 3), torch.randn(1, 2, 4, 5)
    product = torch.zeros(1, 2, 4, 5)
    for bad, error, message in [
        (product[:, :, :3], ValueError, r"product: want \[1, 2, 4, 5\], got \[1, 2, 3, 5\]"),
        (product.double(), TypeError, "product: want torch.float32, got torch.float64"),
        (None, TypeError, "product: want a tensor, got NoneType"),
    ]:
        with pytest.raises(error, match=message):
            causal_product_cpu.causal_dot_product(q, k, v, bad)
    gradients = [torch.zeros_like(tensor) for tensor in (q, k, v)]
    with pytest.raises(ValueError, match="grad_keys: want"):
        causal_product_cpu.causal_dot_backward(q, k, v, product, q, v, v)
    with pytest.raises(ValueError, match="grad_out: want"):
        causal_product_cpu.causal_dot_backward(q, k, v, q, *gradients)


@pytest.mark.parametrize("sizes", [(5, 5), (7, 4), (4, 7), (0, 3)])
def test_causal_linear_is_the_product_with_heads_inside(sizes):
    rows, columns = sizes
    shapes = (rows, 6), (columns, 6), (columns, 3)
    heads_first = [torch.randn(2, 3, *s, dtype=torch.float64) for s in shapes]
    given = causal_linear(*(t.transpose(1, 2) for t in heads_first))
    torch.testing.assert_close(given.transpose(1, 2), quadratic(*heads_first))


@pytest.mark.parametrize("sizes", [(6, 15), (5, 3), (1, 4)])
def test_orthogonal_random_matrix(sizes):
    """Columns of a block are orthogonal, but not of one length; torch's generator
    draws them, so that a seed repeats the draw."""
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
    """They are those of the numbered table of docs/migration.md, which tests cite."""
    page = (ROOT / "docs" / "migration.md").read_text()
    rows = re.findall(r"^\| (\d+) \|.*\| (.*) \|$", page, re.M)
    assert [int(number) for number, _ in rows] == list(range(1, 16))
    for number, cell in rows:
        names = re.findall(r"`(test_\w+\.py)::(test_\w+)`", cell)
        assert names, f"defect {number} has no test"
        for file, test in names:
            (found,) = (ROOT / "tests" / "python").rglob(file)
            assert re.search(rf"^def {test}\(", found.read_text(), re.M), f"{file}::{test}"
