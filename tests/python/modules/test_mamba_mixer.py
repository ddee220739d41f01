"""`tarn.nn.MambaMixer` against the layer of Mamba-1 that transformers has: values, steps and
gradients with the same weights."""

import pytest
import torch

from tarn import nn

D, HEADS, WIDTH, STATES, RANK = 12, 4, 6, 5, 3
CHANNELS = HEADS * WIDTH


def pair():
    """Ours and theirs with the same weights, none of which is as it begins."""
    mamba = pytest.importorskip("transformers.models.mamba.modeling_mamba")
    config = pytest.importorskip("transformers").MambaConfig(
        hidden_size=D, state_size=STATES, expand=CHANNELS // D, conv_kernel=4,
        time_step_rank=RANK, use_bias=False, use_conv_bias=True,
    )  # fmt: skip
    torch.manual_seed(5)
    theirs = mamba.MambaMixer(config, layer_idx=0)
    ours = nn.make_attention(
        D, HEADS, "mamba1", d_key=STATES, d_value=WIDTH, gate_rank=RANK, conv_width=4
    )
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.2)
        values, gate = theirs.in_proj.weight.chunk(2)
        steps, keys, queries = theirs.x_proj.weight.split_with_sizes([RANK, STATES, STATES])
        copied = {
            "value_projection.weight": values,
            "gate_projection.weight": gate,
            "convolution.weight": theirs.conv1d.weight[:, 0],
            "convolution.bias": theirs.conv1d.bias,
            "decay_down_projection.weight": steps,
            "key_projection.weight": keys,
            "query_projection.weight": queries,
            "decay_up_projection.weight": theirs.dt_proj.weight,
            "dt_bias": theirs.dt_proj.bias,
            "A_log": theirs.A_log,
            "D": theirs.D,
            "out_projection.weight": theirs.out_proj.weight,
        }
        ours.load_state_dict(copied)  # strict: these are all
    return ours.double(), theirs.double().eval()


@pytest.mark.parametrize("length", [1, 3, 37])
def test_values_are_those_of_transformers(length):
    ours, theirs = pair()
    x = torch.randn(2, length, D, dtype=torch.float64)
    with torch.no_grad():
        wanted = theirs(x)
        torch.testing.assert_close(ours(x), wanted, rtol=0, atol=2e-5)
        ours.float()
        torch.testing.assert_close(ours(x.float()), wanted.float(), rtol=0, atol=2e-5)
        first, state = ours.prefill(x[:, : length // 2].float())
        rows = [first]
        for row in x[:, length // 2 :].float().unbind(1):
            out, state = ours.step(row, state)
            rows.append(out[:, None])
        torch.testing.assert_close(torch.cat(rows, 1), wanted.float(), rtol=0, atol=2e-5)


def test_gradients_are_those_of_transformers():
    ours, theirs = pair()
    x = torch.randn(2, 21, D, dtype=torch.float64)
    readout = torch.randn_like(x)
    given, wanted = x.clone().requires_grad_(), x.clone().requires_grad_()
    (ours(given) * readout).sum().backward()
    (theirs(wanted) * readout).sum().backward()
    pairs = [
        (given.grad, wanted.grad),
        (ours.A_log.grad, theirs.A_log.grad),
        (ours.D.grad, theirs.D.grad),
        (ours.dt_bias.grad, theirs.dt_proj.bias.grad),
        (ours.convolution.weight.grad, theirs.conv1d.weight.grad[:, 0]),
        (ours.decay_up_projection.weight.grad, theirs.dt_proj.weight.grad),
        (ours.out_projection.weight.grad, theirs.out_proj.weight.grad),
    ]
    for ours_, theirs_ in pairs:
        torch.testing.assert_close(ours_, theirs_, rtol=1e-5, atol=1e-5)
