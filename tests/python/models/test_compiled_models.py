"""Models under torch.compile without a graph break, as exported programs, and
under torch.func."""

import pytest
import torch

from tarn import models

SMALL = dict(vocab_size=32, d_model=24, n_layers=2, n_heads=3, d_ff=40, max_positions=32)
STACKS = [
    dict(),
    dict(layers=["linear", "full"], norm_kind="rms", feed_forward="swiglu"),
    dict(layers=["linear", "aft-simple"], positions="sinusoidal"),
    dict(positions="rotary"),
    dict(layers=[{"mixer": "linear", "feature_map": "favor"}, "exact-topk"], norm="post"),
    dict(layers=[{"mixer": "local", "local_context": 5}, "aft-full"]),
    dict(layers=["causal-improved-clustered", "reformer"]),
    dict(layers=["gdn", "mamba2"], norm_kind="rms", feed_forward="swiglu"),
    dict(layers=["kda", "retnet"], positions="rotary", norm="post"),
    dict(layers=["gla", "deltanet"]),
    dict(layers=["norm-linear", "linear"], qk_map="hedgehog", divided_sums=True),
    dict(layers=["hgrn2", "lightning"]),
    dict(layers=["mamba1", "linear"]),
    dict(layers=["short-conv", "rg-lru"]),
    dict(layers=["mlstm", "linear"]),
    dict(attention="mamba2+full"),
    dict(attention="rwkv7", value_residual=True, input_norm=True),
    dict(attention="hgrn2", learned_bounds=True),
    dict(layers=["rwkv7", "linear"], feed_forward="channel-mix"),
]


@pytest.fixture(autouse=True)
def no_programs_of_other_models():
    """torch compiles one function for a limited number of models."""
    torch.compiler.reset()


def model_and_tokens(keys):
    torch.manual_seed(0)
    return models.LanguageModel(**SMALL, **keys), torch.randint(32, (2, 9))


@pytest.mark.parametrize("keys", STACKS, ids=str)
def test_compiles_whole(keys):
    model, tokens = model_and_tokens(keys)
    model.eval()
    wanted = model(tokens)
    wanted.square().mean().backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    out = torch.compile(model, fullgraph=True, backend="aot_eager")(tokens)
    out.square().mean().backward()
    assert torch.equal(out, wanted)
    for parameter, wanted_gradient in zip(model.parameters(), gradients):
        torch.testing.assert_close(parameter.grad, wanted_gradient, rtol=1e-5, atol=1e-7)


def test_compiles_with_dropout():
    model, tokens = model_and_tokens(dict(dropout=0.5))
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    first, second = compiled(tokens), compiled(tokens)
    assert first.isfinite().all() and not torch.equal(first, second)


@pytest.mark.parametrize("keys", STACKS, ids=str)
def test_exports(keys):
    model, tokens = model_and_tokens(keys)
    model.eval()
    program = torch.export.export(model, (tokens,))
    other = tokens.flip(1)
    with torch.no_grad():
        assert torch.equal(program.module()(other), model(other))


@pytest.mark.parametrize("keys", STACKS[:4], ids=str)
def test_gradients_of_each_row_at_once(keys):
    """vmap of grad over a batch, which per-sample methods need."""
    model, tokens = model_and_tokens(keys)
    model.eval()
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def loss(parameters, row):
        out = torch.func.functional_call(model, parameters, (row[None],))
        return out.square().mean()

    together = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, tokens)
    for row in range(2):
        model.zero_grad()
        model(tokens[row : row + 1]).square().mean().backward()
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(together[name][row], parameter.grad, rtol=1e-4, atol=1e-6)
