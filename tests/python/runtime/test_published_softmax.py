"""Softmax decoders whose layers differ, or that store their matrices in other forms, opened
as transformers wrote them."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
safetensors_torch = pytest.importorskip("safetensors.torch")
runtime = pytest.importorskip("tarn.runtime", exc_type=ImportError)
published = pytest.importorskip("published")

DECODER = dict(
    vocab_size=97,
    hidden_size=36,
    intermediate_size=52,
    num_hidden_layers=4,
    num_attention_heads=6,
    num_key_value_heads=2,
    pad_token_id=None,
    eos_token_id=None,
)
WIDE = {**DECODER, "head_dim": 10}
EXPERTS = dict(num_experts=5, num_experts_per_tok=2, moe_intermediate_size=20)
YARN = dict(
    rope_type="yarn", rope_theta=300.0, factor=4.0, original_max_position_embeddings=64,
    beta_fast=8.0, beta_slow=0.5,
)  # fmt: skip
LINEAR = dict(rope_type="linear", rope_theta=2000.0, factor=8.0)
PLAIN = dict(rope_type="default", rope_theta=300.0)
PART = {**PLAIN, "partial_rotary_factor": 0.5}
NEOX = dict(
    vocab_size=97,
    hidden_size=48,
    intermediate_size=52,
    num_hidden_layers=3,
    num_attention_heads=6,
    bos_token_id=None,
    eos_token_id=None,
)
GPT2 = dict(
    vocab_size=97, n_embd=30, n_layer=3, n_head=5, n_positions=203, bos_token_id=None,
    eos_token_id=None,
)  # fmt: skip
SLIDING, FULL = "sliding_attention", "full_attention"
CASES = [
    ("smollm3", WIDE),
    ("smollm3",
     {**DECODER, "no_rope_layer_interval": 2, "use_sliding_window": True, "sliding_window": 9,
      "attention_bias": True, "tie_word_embeddings": False, "rope_parameters": PLAIN}),
    ("smollm3", {**DECODER, "no_rope_layers": [0, 0, 0, 0], "mlp_bias": True}),
    ("smollm3",
     {**DECODER, "no_rope_layers": [0, 1, 1, 0], "use_sliding_window": True, "sliding_window": 5,
      "layer_types": [FULL, SLIDING, FULL, SLIDING], "num_key_value_heads": 6,
      "rope_parameters": YARN}),
    ("phi3", DECODER),
    ("phi3", {**DECODER, "sliding_window": 11, "tie_word_embeddings": True}),
    ("phi3",
     {**DECODER, "head_dim": 16, "num_key_value_heads": 6, "rope_parameters": PART}),
    ("qwen3_moe", {**WIDE, **EXPERTS}),
    ("qwen3_moe",
     {**WIDE, **EXPERTS, "norm_topk_prob": True, "mlp_only_layers": [1], "attention_bias": True,
      "tie_word_embeddings": True, "use_sliding_window": True, "sliding_window": 7}),
    ("qwen3_moe",
     {**DECODER, **EXPERTS, "decoder_sparse_step": 2, "num_experts_per_tok": 5,
      "rope_parameters": YARN}),
    ("olmo3", {**DECODER, "sliding_window": 13}),
    ("olmo3",
     {**DECODER, "sliding_window": 6, "layer_types": [FULL, SLIDING, SLIDING, FULL],
      "rope_parameters": {FULL: {**YARN, "attention_factor": 1.3}, SLIDING: PLAIN},
      "attention_bias": True, "tie_word_embeddings": True}),
    ("olmo3",
     {**DECODER, "num_key_value_heads": 6, "sliding_window": 250, "num_hidden_layers": 3,
      "rope_parameters": {FULL: PLAIN, SLIDING: {**PLAIN, "rope_theta": 77.5}}}),
    ("gemma3_text", {**WIDE, "sliding_window": 9, "num_hidden_layers": 7}),
    ("gemma3_text",
     {**WIDE, "sliding_window": 12, "layer_types": [FULL, SLIDING, SLIDING, FULL],
      "rope_parameters": {FULL: LINEAR, SLIDING: PLAIN}, "query_pre_attn_scalar": 24,
      "tie_word_embeddings": False}),
    ("gemma3_text",
     {**WIDE, "layer_types": [SLIDING] * 4, "sliding_window": 5, "num_key_value_heads": 1,
      "attention_bias": True}),
    ("gpt_neox", NEOX),
    ("gpt_neox",
     {**NEOX, "use_parallel_residual": False, "tie_word_embeddings": True,
      "rope_parameters": PART, "hidden_act": "gelu_fast"}),
    ("gpt_neox",
     {**NEOX, "attention_bias": False, "num_attention_heads": 3, "hidden_act": "relu",
      "rope_parameters": {**YARN, "partial_rotary_factor": 1.0}}),
    ("gpt2", GPT2),
    ("gpt2",
     {**GPT2, "n_inner": 77, "activation_function": "gelu", "tie_word_embeddings": False,
      "scale_attn_by_inverse_layer_idx": True}),
    ("gpt2",
     {**GPT2, "scale_attn_weights": False, "activation_function": "relu",
      "scale_attn_by_inverse_layer_idx": True, "reorder_and_upcast_attn": True}),
]  # fmt: skip
NAMES = [f"{kind}-{index}" for index, (kind, _) in enumerate(CASES)]


@pytest.mark.parametrize(("kind", "keys"), CASES, ids=NAMES)
def test_logits_are_those_of_the_definer(kind, keys, tmp_path):
    published.assert_definer_agrees(kind, keys, tmp_path)
