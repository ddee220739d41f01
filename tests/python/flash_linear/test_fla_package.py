"""flash-linear-attention's own package after tarn.install_as_fla(): models of its families run
and train on the CPU. Skipped where it is not installed; its modules' functions are held by
test_fla_package_forms.py everywhere."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest
import torch

FOLDER = pathlib.Path(__file__).parent
MODELS = (
    "retnet",
    "gla",
    "hgrn",
    "hgrn2",
    "delta_net",
    "gated_deltanet",
    "gated_deltaproduct",
    "comba",
    "gsa",
    "lightnet",
    "forgetting",
    "kda",
    "rwkv6",
    "rwkv7",
    "mamba2",
    "linear_attn",
)
PEERS = FOLDER.parents[2] / ".venv-peers/bin/python"
FOUND = (
    "import importlib.util as u, sys; sys.exit(not (u.find_spec('fla') and u.find_spec('torch')))"
)


def _python():
    """This Python or that of the peers, whichever has the package; None: neither."""
    for one in (sys.executable, PEERS):
        if pathlib.Path(one).is_file() and subprocess.run([one, "-c", FOUND]).returncode == 0:
            return str(one)
    return None


PYTHON = _python()
installed = pytest.mark.skipif(
    PYTHON is None or importlib.util.find_spec("transformers") is None,
    reason="flash-linear-attention is not installed (make bench-peers)",
)


def program(*arguments):
    python = PYTHON or sys.executable  # refusals need no package
    return subprocess.run(
        [python, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=1200,
        env=dict(os.environ, HF_HUB_OFFLINE="1"),
    )


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    path = tmp_path_factory.mktemp("fla") / "told"
    done = program(FOLDER / "fla_models.py", path, *MODELS)
    assert done.returncode == 0, done.stderr
    return torch.load(path)


def distance(ours, theirs):
    return float((ours - theirs).norm() / theirs.norm())


@installed
@pytest.mark.parametrize("name", MODELS)
def test_prefill_and_steps_give_the_whole(told, name):
    found = told[name]
    assert found["logits"].shape == (2, 100, 97)
    assert distance(found["steps"], found["logits"]) < 1e-5


@installed
@pytest.mark.parametrize("name", MODELS)
def test_padded_and_packed_rows_are_rows_alone(told, name):
    found = told[name]
    assert distance(found["padded"], found["short"]) < 1e-5
    if name not in ("linear_attn", "mamba2"):  # whose models hand no bounds to their layers
        assert distance(found["packed"], found["short"]) < 1e-5


@installed
@pytest.mark.parametrize("name", MODELS)
def test_training_agrees_with_loops(told, name):
    """Of recurrences over tokens in float64, with torch's operators and autograd around them."""
    found = told[name]
    (loss, ours), (looped, theirs) = found["kernels"], found["loops"]
    assert found["called"] or name == "forgetting"  # which has none: test_fla_softmax.py
    torch.testing.assert_close(loss, found["loss"], rtol=1e-5, atol=0)
    torch.testing.assert_close(loss, looped, rtol=1e-5, atol=0)
    assert all(gradient is not None for gradient in ours.values())
    size = max(gradient.norm() for gradient in theirs.values())
    for weight, gradient in theirs.items():
        assert (ours[weight] - gradient).norm() < 1e-4 * gradient.norm() + 1e-6 * size, weight


@installed
def test_signatures():
    done = program(
        "-c",
        """
import inspect, importlib, tarn
tarn.install_as_fla()
from tarn import _fla_package as package
for part, places in package._FORMS.items():
    forms = importlib.import_module(f"tarn._fla_package.{part}")
    for path, names in places.items():
        for name in names:
            theirs = getattr(importlib.import_module(f"fla.{path}"), name).__wrapped__
            if inspect.ismethod(theirs) or inspect.isbuiltin(theirs):
                continue  # a Function's apply, which has no names
            wanted, given = (
                [(one.name, one.default) for one in inspect.signature(f).parameters.values()]
                for f in (theirs, getattr(forms, name)))
            assert wanted == given, (name, wanted, given)
""",
    )
    assert done.returncode == 0, done.stderr


@installed
def test_the_rest_of_the_process():
    """Triton stays away, a package that was imported without it fills, a second call changes
    nothing, what has no form says so, and torch.compile still finds its way."""
    if importlib.util.find_spec("triton") is not None:
        pytest.skip("Triton is installed")
    done = program(
        "-c",
        """
import sys, warnings
warnings.simplefilter("ignore")
import fla, tarn
assert not fla.__all__, "Triton is installed"
tarn.install_as_fla()
assert fla.GLAForCausalLM
import fla.layers.gla as layer
before = layer.chunk_gla
tarn.install_as_fla()
assert layer.chunk_gla is before and before.__wrapped__ is not before
try:
    import triton
    raise SystemExit("triton")
except ModuleNotFoundError:
    pass
import torch
from fla.ops.based import fused_chunk_based
x = torch.randn(1, 64, 2, 16)
try:
    fused_chunk_based(x, x, x)
    raise SystemExit("launched")
except RuntimeError as error:
    print(error)
from fla.ops.mesa_net import chunk_mesa_net
try:
    beta = x[..., 0].sigmoid()
    chunk_mesa_net(x, x, x, beta.log(), beta, x[0, 0].exp())
    raise SystemExit("launched")
except RuntimeError as error:
    print(error)
f = torch.compile(lambda x: x.sin() + 1, backend="aot_eager")
torch.testing.assert_close(f(x), x.sin() + 1)
try:
    tarn.accelerate_transformers()
except RuntimeError as error:
    print(error)
""",
    )
    assert done.returncode == 0, done.stderr
    assert "fla: fused_chunk_based: want a GPU and Triton, got a call on the CPU" in done.stdout
    assert "docs/migration.md lists those that it has" in done.stdout
    assert "fla: chunk_mesa_net: want" in done.stdout  # whose first kernel is one of fla.ops.utils
    assert "accelerate_transformers: want it called before" in done.stdout


@installed
def test_refusals():
    done = program(
        "-c",
        """
import sys, tarn
tarn.accelerate_transformers()
try:
    tarn.install_as_fla()
except RuntimeError as error:
    print(error)
""",
    )
    if "No module named 'transformers'" in done.stderr:
        pytest.skip("transformers is not installed")
    assert "install_as_fla: want it called without accelerate_transformers" in done.stdout
