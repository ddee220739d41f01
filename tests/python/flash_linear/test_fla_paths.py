"""Processes without flash-linear-attention, mamba_ssm and causal_conv1d find tarn's functions
under the module paths of these packages, after either call."""

import importlib.util
import subprocess
import sys

import pytest

absent = pytest.mark.skipif(
    importlib.util.find_spec("fla") is not None, reason="flash-linear-attention is installed"
)
# What the published code of Kimi-Linear and other models imports.
IMPORTS = """
import fla.ops.kda.gate, tarn.fla
from fla.ops import chunk_gated_delta_rule, fused_recurrent_rwkv7
from fla.ops.gated_delta_rule.gate import fused_gdn_gate
from fla.ops.kda import chunk_kda, fused_recurrent_kda
from fla.ops.kda.gate import fused_kda_gate
from fla.ops.simple_gla import chunk_simple_gla
for one in (chunk_gated_delta_rule, fused_recurrent_rwkv7, fused_gdn_gate, chunk_kda,
            fused_recurrent_kda, fused_kda_gate, chunk_simple_gla):
    assert one is getattr(tarn.fla, one.__name__), one
assert fla.ops.kda.gate.fused_kda_gate is fused_kda_gate and fla.chunk_kda is chunk_kda
try:
    from fla.layers import GLA
    raise SystemExit("found")
except ModuleNotFoundError as error:
    print(error)
"""


def printed(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_paths_after_accelerate_transformers():
    told = printed(
        "import tarn; tarn.accelerate_transformers()"
        + IMPORTS
        + """
from mamba_ssm.ops.triton.selective_state_update import selective_state_update
from mamba_ssm.ops.triton.ssd_combined import (
    mamba_chunk_scan_combined, mamba_split_conv1d_scan_combined)
from mamba_ssm.ops.selective_scan_interface import selective_scan_fn
from causal_conv1d import causal_conv1d_fn, causal_conv1d_update
for one in (selective_state_update, selective_scan_fn, mamba_chunk_scan_combined,
            mamba_split_conv1d_scan_combined, causal_conv1d_fn,
            causal_conv1d_update):
    assert one is getattr(tarn.fla, one.__name__), one
assert not hasattr(fla, "causal_conv1d_fn")
try:
    import mamba_ssm.modules.mamba2
except ModuleNotFoundError as error:
    print(error)
"""
    )
    assert "fla.layers: want a module of functions that tarn.fla has" in told
    assert "layers and models need flash-linear-attention 0.6 installed" in told
    assert "mamba_ssm.modules: want" in told


@absent
def test_paths_after_install_as_fla():
    told = printed(
        "import tarn; tarn.install_as_fla(); tarn.install_as_fla()"
        + IMPORTS
        + """
import importlib.util
assert importlib.util.find_spec("mamba_ssm") is None
tarn.accelerate_transformers(linear=False)
from causal_conv1d import causal_conv1d_fn
assert fla.ops.kda.gate.fused_kda_gate is fused_kda_gate
tarn.install_as_fla()
"""
    )
    assert "fla.layers: want a module" in told
