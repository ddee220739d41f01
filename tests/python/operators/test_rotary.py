"""Rotary positions after the feature map: the formula in double, gradients, steps,
encoders under padding, and what falls back to linear attention."""

import pytest
import torch

import tarn
from tarn import models, recurrent
from tarn.models._rotary import TurnedLinearAttention

SMALL = dict(vocab_size=64, d_model=24, n_layers=2, n_heads=3, d_ff=40, max_positions=32)
AFTER = dict(positions="rotary", rotary_place="after", rotary_base=50.0)
FORMS = [
    ("elu1", "exact"),
    ("elu1", "compat"),
    ("elu1", "none"),
    ("relu", "exact"),
    ("relu2", "compat"),
    ("identity", "none"),
]


def turned(x, base):
    """x [B, H, T, K]: entries i and i + K/2 rotated by t base^(-2 i / K). The tables
    of a model are float32."""
    half = x.shape[-1] // 2
    rates = base ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = torch.arange(x.shape[2], dtype=torch.float64)[:, None] * rates
    a, b = x[..., :half], x[..., half:]
    cos, sin = angles.cos().float().double(), angles.sin().float().double()
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


PHI = {
    "elu1": lambda x: torch.nn.functional.elu(x) + 1,
    "relu": torch.relu,
    "relu2": lambda x: torch.relu(x) ** 2,
    "identity": lambda x: x,
}


def by_definition(q, k, v, config, causal, keep=None):
    """[B, T, H, .] -> [B, T, H, V], every pair of positions by itself."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    phi = PHI[config["feature_map"]]
    weights = phi(q) @ phi(k).mT
    kept = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
    kept = kept.tril() if causal else kept
    kept = kept if keep is None else kept & keep[:, None, None]
    base = config["rotary_base"]
    numerators = (turned(phi(q), base) @ turned(phi(k), base).mT * kept) @ v
    sums = (weights * kept).sum(-1, keepdim=True)
    if config["denominator"] == "none":
        out = numerators
    elif config["denominator"] == "compat":
        out = numerators / (sums + config["eps"])
    else:
        out = torch.where(sums > 0, numerators / torch.where(sums > 0, sums, 1), 0)
    return out.transpose(1, 2)


def inner_of(causal, name, denominator):
    keys = dict(SMALL, **AFTER, feature_map=name, denominator=denominator, eps=0.125)
    if causal:
        model = models.LanguageModel(**keys)
    else:
        model = models.Classifier(task="classify", n_classes=3, **keys)
    inner = model.layers[0].attention.inner_attention
    assert isinstance(inner, TurnedLinearAttention)
    return inner.eval(), model.config


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name, denominator", FORMS)
def test_the_formula_and_its_gradient(name, denominator, causal):
    inner, config = inner_of(causal, name, denominator)
    q, k, v = (torch.randn(2, 7, 3, 8, dtype=torch.float64, requires_grad=True) for _ in "qkv")
    mask = tarn.masking.TriangularCausalMask(7) if causal else None
    lengths = tarn.masking.LengthMask(torch.tensor([7, 4]), max_len=7)
    keep = None if causal else lengths.bool_matrix
    wanted = by_definition(q, k, v, config, causal, keep)
    given = inner(q, k, v, mask, None, None if causal else lengths)
    torch.testing.assert_close(given, wanted, rtol=0, atol=1e-12)
    grad = torch.randn_like(wanted)
    found, expected = (torch.autograd.grad(out, (q, k, v), grad) for out in (given, wanted))
    for one, other in zip(found, expected):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
    single = [x.detach().float() for x in (q, k, v)]
    given = inner(*single, mask, None, None if causal else lengths)
    torch.testing.assert_close(given, wanted.detach().float(), rtol=0, atol=1e-5)


def test_masked_keys_have_no_influence():
    inner, _ = inner_of(False, "elu1", "exact")
    mask = tarn.masking.LengthMask(torch.tensor([5, 3]), max_len=5)
    q, k, v = (torch.randn(2, 5, 3, 8) for _ in "qkv")
    wanted = inner(q, k, v, None, mask, mask)
    k[1, 3:], v[1, 3:] = float("nan"), float("nan")
    q, k, v = (x.requires_grad_() for x in (q, k, v))
    given = inner(q, k, v, None, mask, mask)
    assert torch.equal(given, wanted)
    for gradient in torch.autograd.grad(given.sum(), (q, k, v)):
        assert gradient.isfinite().all()


@pytest.mark.parametrize("name, denominator", FORMS)
def test_the_recurrent_twin_in_double(name, denominator):
    model = (
        models.LanguageModel(**SMALL, **AFTER, feature_map=name, denominator=denominator)
        .double()
        .eval()
    )
    tokens = torch.randint(64, (3, 9))
    wanted = model(tokens)
    lengths = torch.tensor([4, 0, 2])
    first, state = model.prefill(tokens[:, :4], lengths)
    for row, length in enumerate(lengths):
        torch.testing.assert_close(first[row, :length], wanted[row, :length], rtol=0, atol=1e-10)
    # Each row continues from its own position.
    for t in range(4):
        at = lengths + t
        logits, state = model.step(tokens[torch.arange(3), at], state)
        expected = wanted[torch.arange(3), at]
        torch.testing.assert_close(logits, expected, rtol=0, atol=1e-10)


def test_states_of_other_turns_are_refused():
    after = models.LanguageModel(**SMALL, **AFTER).eval()
    before = models.LanguageModel(**{**SMALL, **AFTER, "rotary_place": "before"}).eval()
    slower = models.LanguageModel(**{**SMALL, **AFTER, "rotary_base": 60.0}).eval()
    tokens = torch.randint(64, (2, 5))
    state = after.prefill(tokens)[1]
    assert all(part.facts["rotary_place"] == "after" for part in state)
    with pytest.raises(ValueError, match="rotary_base: want 60.0, got 50.0"):
        slower.step(tokens[:, 0], state)
    with pytest.raises(ValueError, match="rotary_place: want 'after', got None"):
        after.step(tokens[:, 0], before.prefill(tokens)[1])
    moved = recurrent.reorder(state, [1, 0])
    given = after.step(tokens[:, 0], moved)[0]
    wanted = after.step(tokens[[1, 0], 0], state)[0][[1, 0]]
    torch.testing.assert_close(given, wanted)


def test_directories_keep_every_bit(tmp_path):
    for cls, keys in (
        (models.LanguageModel, {}),
        (models.Classifier, {"task": "classify", "n_classes": 3}),
        (models.Seq2Seq, {}),
    ):
        model = cls(**{**SMALL, "vocab_size": 256}, **AFTER, **keys).eval()
        tarn.save_model(model, tmp_path / cls.__name__)
        read = tarn.load_model(tmp_path / cls.__name__).eval()
        tokens = torch.randint(256, (2, 6))
        inputs = (tokens, tokens) if cls is models.Seq2Seq else (tokens,)
        assert torch.equal(read(*inputs), model(*inputs))


def test_seq2seq_forms_agree():
    model = models.Seq2Seq(**SMALL, **AFTER).eval()
    source, target = torch.randint(64, (2, 7)), torch.randint(64, (2, 6))
    lengths = torch.tensor([7, 4])
    wanted = model(source, target, lengths)
    state = model.initial_state(source, lengths)
    first, state = model.prefill(target[:, :4], state)
    second, _ = model.prefill(target[:, 4:], state)
    torch.testing.assert_close(torch.cat([first, second], 1), wanted, rtol=0, atol=3e-5)


def test_conditional_full_turns_what_it_runs():
    """Short sequences run as full attention, longer ones as linear attention whose
    features are rotated."""
    keys = {**SMALL, **AFTER}
    both = models.LanguageModel(attention="conditional-full", length_limit=5, **keys).eval()
    for kind, seq_len in (("full", 5), ("linear", 6)):
        alone = models.LanguageModel(attention=kind, **keys).eval()
        alone.load_state_dict(both.state_dict())
        tokens = torch.randint(64, (2, seq_len))
        torch.testing.assert_close(both(tokens), alone(tokens), rtol=0, atol=1e-6)
