"""torch.nn.Linear after tarn.accelerate_transformers(): few rows outside of autograd go to
tarn's kernel, all else to torch."""

import subprocess
import sys

import pytest

PROGRAM = """
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
    "asked for later": dict(
        call="tarn.accelerate_transformers(linear=False)\ntarn.accelerate_transformers()"
    ),
}
USUAL = dict(
    call="tarn.accelerate_transformers()",
    bias=True,
    layer="",
    shape="1, 40",
    rows="",
    mode="no_grad()",
    ours=True,
    error=1e-5,
)
CALLS = sorted({(USUAL | case)["call"] for case in CASES.values()})


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call or "none")
def test_few_rows_take_the_kernel(call):
    cases = {name: USUAL | case for name, case in CASES.items()}
    programs = [
        f"print({name!r})" + PROGRAM.format(**case)
        for name, case in cases.items()
        if case["call"] == call
    ]
    done = subprocess.run(
        [sys.executable, "-c", f"import torch, tarn\n{call}\n" + "".join(programs)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr  # the last name is the case
