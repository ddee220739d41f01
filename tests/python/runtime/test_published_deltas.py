"""Hybrids with the delta rule or linear attention, opened as transformers wrote them."""

import json

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
safetensors_torch = pytest.importorskip("safetensors.torch")
runtime = pytest.importorskip("tarn.runtime", exc_type=ImportError)
published = pytest.importorskip("published")

QWEN = dict(
    vocab_size=97,
    hidden_size=36,
    intermediate_size=52,
    num_hidden_layers=4,
    num_attention_heads=6,
    num_key_value_heads=2,
    head_dim=16,
    linear_num_key_heads=2,
    linear_num_value_heads=6,
    linear_key_head_dim=10,
    linear_value_head_dim=14,
    pad_token_id=None,
    eos_token_id=None,
)
EXPERTS = dict(
    num_experts=5,
    num_experts_per_tok=2,
    moe_intermediate_size=20,
    shared_expert_intermediate_size=28,
)
ROPE = dict(rope_type="default", rope_theta=300.0, partial_rotary_factor=0.5)
MROPE = {**ROPE, "mrope_section": [2, 1, 1], "mrope_interleaved": True}
CASES = [
    ("qwen3_next", {**QWEN, **EXPERTS}),
    ("qwen3_next",
     {**QWEN, **EXPERTS, "mlp_only_layers": [1], "norm_topk_prob": False, "attention_bias": True,
      "linear_num_key_heads": 6, "linear_conv_kernel_dim": 3, "tie_word_embeddings": True,
      "rope_parameters": ROPE}),
    ("qwen3_next",
     {**QWEN, **EXPERTS, "decoder_sparse_step": 2, "num_hidden_layers": 3, "head_dim": 10,
      "layer_types": ["full_attention", "linear_attention", "linear_attention"],
      "linear_num_key_heads": 1, "partial_rotary_factor": 1.0}),
    ("qwen3_next", {**QWEN, **EXPERTS, "num_experts": 0, "num_experts_per_tok": 0}),
    ("qwen3_5_text", QWEN),
    ("qwen3_5_text",
     {**QWEN, "tie_word_embeddings": True, "rope_parameters": MROPE, "num_key_value_heads": 6}),
    ("qwen3_5_text", {**QWEN, "attention_bias": True, "full_attention_interval": 2}),
    ("qwen3_5_moe_text", {**QWEN, **EXPERTS}),
    ("qwen3_5_moe_text",
     {**QWEN, **EXPERTS, "tie_word_embeddings": True, "num_experts_per_tok": 5}),
    ("qwen3_5_moe_text", {**QWEN, **EXPERTS, "rope_parameters": MROPE, "attention_bias": True}),
]  # fmt: skip
NAMES = [f"{kind}-{index}" for index, (kind, _) in enumerate(CASES)]


@pytest.mark.parametrize(("kind", "keys"), CASES, ids=NAMES)
def test_logits_are_those_of_the_definer(kind, keys, tmp_path):
    published.assert_definer_agrees(kind, keys, tmp_path)
