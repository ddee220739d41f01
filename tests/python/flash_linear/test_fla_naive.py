"""tarn.fla compared with flash-linear-attention's own naive functions, where its
sources are at hand: the package, installed or unpacked (TARN_FLA_SOURCES names its
folder)."""

import importlib.util
import os
import pathlib
import sys
import types

import pytest
import torch
from fla_reference import draw

from tarn import fla


def error(ours, theirs):
    ours, theirs = ours.detach().double(), theirs.detach().double()
    assert ours.shape == theirs.shape
    return float((ours - theirs).norm() / max(float(theirs.norm()), 1e-30))


def floats(x):
    return {name: one.float() for name, one in x.items()}


def sources():
    given = os.environ.get("TARN_FLA_SOURCES")
    if given:
        return pathlib.Path(given)
    found = importlib.util.find_spec("fla")
    return pathlib.Path(found.origin).parent if found is not None and found.origin else None


@pytest.fixture
def naive(monkeypatch):
    """naive(family, file, function): loaded by path, as the package itself may not import.
    What the files take from einops only their chunked forms call."""
    folder = sources()
    if folder is None or not folder.is_dir():
        pytest.skip("no sources of flash-linear-attention")
    if importlib.util.find_spec("einops") is None:
        stand_in = types.ModuleType("einops")
        stand_in.__dict__["rearrange"] = None
        monkeypatch.setitem(sys.modules, "einops", stand_in)

    def load(family, file, function):
        path = folder / "ops" / family / file
        spec = importlib.util.spec_from_file_location("naive_" + family.replace("/", "_"), path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return getattr(module, function)

    return load


def heads_first(*tensors):
    return [one.transpose(1, 2) for one in tensors]


def test_naive_functions(naive):
    """Their float32 against this float32: both round, 2e-6 apart at most."""
    x = floats(draw("q, k, v, g, beta", 40))
    q, k, v, g, beta = x.values()
    state = torch.randn(2, 2, 5, 3)
    given = dict(initial_state=state, output_final_state=True)
    channel = floats(draw("g channel, u", 40, seed=1))
    pairs = [
        (
            naive("simple_gla", "naive.py", "naive_recurrent_simple_gla")(q, k, v, g, **given),
            fla.chunk_simple_gla(q, k, v, g, **given),
        ),
        (
            naive("gla", "naive.py", "naive_recurrent_gla")(q, k, v, channel["g"], **given),
            fla.chunk_gla(q, k, v, channel["g"], **given),
        ),
        (
            naive("gated_delta_rule", "naive.py", "naive_recurrent_gated_delta_rule")(
                q, k, v, beta, g, **given
            ),
            fla.chunk_gdn(q, k, v, g, beta, **given),
        ),
        (
            naive("kda", "naive.py", "naive_recurrent_kda")(q, k, v, channel["g"], beta, **given),
            fla.chunk_kda(q, k, v, channel["g"], beta, **given),
        ),
        (
            naive("linear_attn", "naive.py", "naive_recurrent_linear_attn")(q, k, v, **given),
            fla.fused_recurrent_linear_attn(q, k, v, **given),
        ),
    ]
    for theirs, ours in pairs:
        assert error(ours[0], theirs[0]) <= 2e-6 and error(ours[1], theirs[1]) <= 2e-6
    o, S = naive("delta_rule", "naive.py", "delta_rule_recurrence")(
        *heads_first(q, k, v, beta), state
    )
    ours, last = fla.chunk_delta_rule(q, k, v, beta, **given)
    assert error(ours, o.transpose(1, 2)) <= 2e-6 and error(last, S) <= 2e-6
    o, S = naive("rwkv6", "recurrent_naive.py", "naive_recurrent_rwkv6")(
        *heads_first(q, k, v, channel["g"]), channel["u"], **given
    )
    ours, last = fla.chunk_rwkv6(q, k, v, channel["g"], channel["u"], **given)
    assert error(ours, o.transpose(1, 2)) <= 2e-6 and error(last, S) <= 2e-6
    pair = floats(draw("a, b, gk", 40, seed=2))
    o, S = naive("generalized_delta_rule/dplr", "naive.py", "dplr_recurrence")(
        *heads_first(q, k, v, *pair.values()), state
    )
    ours, last = fla.chunk_dplr_delta_rule(q, k, v, **pair, **given)
    assert error(ours, o.transpose(1, 2)) <= 2e-6 and error(last, S) <= 2e-6
    o = naive("retention", "naive.py", "naive_retention")(*heads_first(q, k, v))
    assert error(fla.chunk_retention(q, k, v)[0], o.transpose(1, 2)) <= 2e-6


def test_naive_hgrn(naive):
    x = floats(draw("q, g channel", 40, seed=3))
    x, g = x["q"].flatten(2), x["g"].flatten(2)
    state = torch.randn(2, x.shape[2])
    theirs = naive("hgrn", "naive.py", "naive_recurrent_hgrn")(
        x, g, initial_state=state, output_final_state=True
    )
    for function in (fla.chunk_hgrn, fla.fused_recurrent_hgrn):
        out, last = function(x, g, initial_state=state, output_final_state=True)
        assert error(out, theirs[0]) <= 2e-6 and error(last, theirs[1]) <= 2e-6
