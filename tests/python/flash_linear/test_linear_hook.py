"""torch.nn.Linear after tarn.accelerate_transformers(): few rows outside of autograd go to
tarn's kernel, all else to torch."""

import subprocess
import sys

import pytest

PROGRAM = """
import torch, tarn
{call}
torch.manual_seed(1)
layer = torch.nn.Linear(40, 24, bias={bias}){layer}
x = torch.randn({shape}){rows}
with torch.profiler.profile() as profile, torch.{mode}:
    found = layer(x)
names = [event.name for event in profile.events()]
assert ("tarn::affine" in names) == {ours}, sorted(set(names))
expected = torch.nn.functional.linear(x.double(), layer.weight.double(),
                                      None if layer.bias is None else layer.bias.double())
assert found.shape == expected.shape
assert torch.allclose(found.double(), expected, rtol=0, atol={error})
"""

CASES = {
    "a token": dict(),
    "no bias": dict(bias=False),
    "sixteen rows": dict(shape="2, 8, 40"),
    "no rows": dict(shape="0, 40"),
    "columns of a matrix": dict(rows="", shape="40, 3).t().expand(3, 40"),
    "seventeen rows": dict(shape="17, 40", ours=False),
    "gradients wanted": dict(mode="enable_grad()", ours=False),
    "bfloat16": dict(layer=".bfloat16()", rows=".bfloat16()", ours=False, error=0.05),
    "float64": dict(layer=".double()", rows=".double()", ours=False),
    "declined": dict(call="tarn.accelerate_transformers(linear=False)", ours=False),
    "not asked for": dict(call="", ours=False),
    "asked for later": dict(call="tarn.accelerate_transformers(linear=False)\n"
                                 "tarn.accelerate_transformers()"),
}


@pytest.mark.parametrize("case", CASES)
def test_few_rows_take_the_kernel(case):
    words = dict(call="tarn.accelerate_transformers()", bias=True, layer="", shape="1, 40",
                 rows="", mode="no_grad()", ours=True, error=1e-5) | CASES[case]
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(**words)], capture_output=True,
                          text=True, timeout=300)
    assert done.returncode == 0, done.stderr
