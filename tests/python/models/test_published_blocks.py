"""Whole models with the blocks of published ones (norms before and after the parts, factors,
weights of norms around 0) against transformers' own classes with the same random weights."""

import pytest
import torch

import tarn
from tarn import runtime
from tarn.models import LanguageModel

transformers = pytest.importorskip("transformers")

WIDTH, HEADS, KEY_HEADS, HIDDEN, VOCAB, LAYERS = 32, 4, 2, 56, 256, 4
COMMON = dict(
    vocab_size=VOCAB, hidden_size=WIDTH, intermediate_size=HIDDEN, num_hidden_layers=LAYERS,
    num_attention_heads=HEADS, num_key_value_heads=KEY_HEADS, max_position_embeddings=64,
    rms_norm_eps=1e-5, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    attn_implementation="eager", rope_parameters={"rope_type": "default", "rope_theta": 100.0},
)  # fmt: skip
OURS = dict(
    vocab_size=VOCAB, d_model=WIDTH, d_ff=HIDDEN, n_layers=LAYERS, n_heads=HEADS, d_key=8,
    d_value=8, key_heads=KEY_HEADS, qkv_bias=False, out_bias=False, attention="full",
    positions="rotary", rotary_base=100.0, norm_kind="rms", norm_eps=1e-5, feed_forward="swiglu",
)  # fmt: skip


def gemma2():
    config = transformers.Gemma2Config(
        **COMMON, head_dim=8, hidden_activation="gelu", query_pre_attn_scalar=5,
        attn_logit_softcapping=0.4, final_logit_softcapping=None, sliding_window=7,
        layer_types=["sliding_attention", "full_attention"] * (LAYERS // 2),
    )  # fmt: skip
    keys = OURS | dict(
        layers=[{"mixer": "full", "window": 7}, "full"], softcap=0.4, score_scale=5**-0.5,
        norm="both", norm_offset=1.0, embedding_factor=WIDTH**0.5, feed_forward="geglu",
        tied_head=True,
    )  # fmt: skip
    del keys["attention"]
    return transformers.Gemma2ForCausalLM(config), keys


def olmo2():
    config = transformers.Olmo2Config(**COMMON)
    return transformers.Olmo2ForCausalLM(config), OURS | dict(norm="after", head_norm="full")


def granite():
    config = transformers.GraniteConfig(
        **COMMON, embedding_multiplier=12.0, residual_multiplier=0.22, logits_scaling=8.0,
        attention_multiplier=0.1,
    )  # fmt: skip
    keys = OURS | dict(
        embedding_factor=12.0, residual_factor=0.22, logit_factor=1 / 8, score_scale=0.1
    )
    return transformers.GraniteForCausalLM(config), keys


NORMS = {
    "gemma2": {
        "input_layernorm": "norm1", "post_attention_layernorm": "norm1_after",
        "pre_feedforward_layernorm": "norm2", "post_feedforward_layernorm": "norm2_after",
    },
    "olmo2": {"post_attention_layernorm": "norm1", "post_feedforward_layernorm": "norm2"},
    "granite": {"input_layernorm": "norm1", "post_attention_layernorm": "norm2"},
}  # fmt: skip
PARTS = {
    "self_attn.q_proj": "attention.query_projection",
    "self_attn.k_proj": "attention.key_projection",
    "self_attn.v_proj": "attention.value_projection",
    "self_attn.o_proj": "attention.out_projection",
    "self_attn.q_norm": "attention.query_norm",
    "self_attn.k_norm": "attention.key_norm",
    "mlp.gate_proj": "linear1",
    "mlp.up_proj": "linear3",
    "mlp.down_proj": "linear2",
}


def weights_of(name, theirs, keys):
    """Their tensors by our names; the bias of our head is 0."""
    found = {"predictor.bias": torch.zeros(VOCAB)}
    for key, value in theirs.state_dict().items():
        key = key.removeprefix("model.")
        if key.startswith("layers."):
            _, number, part = key.split(".", 2)
            part = part.removesuffix(".weight")
            found[f"layers.{number}.{(PARTS | NORMS[name])[part]}.weight"] = value
        elif key == "embed_tokens.weight":
            found["value_embedding.weight"] = value
        elif key == "norm.weight":
            found["norm.weight"] = value
        elif not keys.get("tied_head"):
            assert key == "lm_head.weight"
            found["predictor.weight"] = value
    return found


@pytest.mark.parametrize("name", NORMS)
def test_logits_are_those_of_transformers(name, tmp_path):
    torch.manual_seed(3)
    theirs, keys = {"gemma2": gemma2, "olmo2": olmo2, "granite": granite}[name]()
    with torch.no_grad():
        for key, weight in theirs.named_parameters():
            if "norm" in key:
                weight.add_(0.3 * torch.randn_like(weight))
            else:
                weight.mul_(4)  # far from an identity
    ours = LanguageModel(**keys)
    ours.load_state_dict(weights_of(name, theirs, keys), strict=True)
    tokens = torch.randint(0, VOCAB, (2, 23))
    theirs.eval(), ours.eval()
    with torch.no_grad():
        wanted = theirs(input_ids=tokens).logits
        assert wanted.std() > 0.01
        bound = 2e-5 * wanted.abs().max()
        torch.testing.assert_close(ours(tokens), wanted, atol=bound.item(), rtol=0)
        state, rows = None, []
        for t in range(tokens.shape[1]):
            row, state = ours.step(tokens[:, t], state)
            rows.append(row)
        torch.testing.assert_close(torch.stack(rows, 1), wanted, atol=bound.item(), rtol=0)

        # The runtime opens what Python saved.
        tarn.save_model(ours, tmp_path / "model")
        lean = runtime.Model(tmp_path / "model")
        for row in range(2):
            logits = lean.prefill(lean.state(), tokens[row].tolist())
            torch.testing.assert_close(
                torch.as_tensor(logits), wanted[row, -1], atol=bound.item(), rtol=0
            )
