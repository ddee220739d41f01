"""Hybrids with the delta rule or linear attention, opened as transformers wrote them."""

import json
import pathlib
import re

import numpy as np
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
OLMO = dict(
    vocab_size=97,
    hidden_size=36,
    intermediate_size=52,
    num_hidden_layers=4,
    num_attention_heads=6,
    num_key_value_heads=2,
    linear_num_key_heads=2,
    linear_num_value_heads=6,
    linear_key_head_dim=10,
    linear_value_head_dim=14,
    pad_token_id=None,
    eos_token_id=None,
)
MINIMAX = dict(
    vocab_size=97,
    hidden_size=36,
    intermediate_size=20,
    num_hidden_layers=4,
    num_attention_heads=6,
    num_key_value_heads=2,
    num_local_experts=5,
    head_dim=10,
    pad_token_id=None,
    eos_token_id=None,
)
KIMI = dict(
    vocab_size=97,
    hidden_size=36,
    intermediate_size=52,
    moe_intermediate_size=20,
    num_hidden_layers=3,
    num_attention_heads=6,
    num_key_value_heads=6,
    kv_lora_rank=14,
    qk_rope_head_dim=6,
    qk_nope_head_dim=10,
    v_head_dim=12,
    num_local_experts=5,
    num_experts_per_tok=2,
    linear_num_heads=4,
    linear_head_dim=10,
    layer_types=["linear_attention", "full_attention", "linear_attention"],
    pad_token_id=None,
    bos_token_id=None,
    eos_token_id=None,
)
KIMI_LISTS = dict(
    num_heads=4, head_dim=10, short_conv_kernel_size=3, kda_layers=[2, 3], full_attn_layers=[1]
)
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
    ("olmo_hybrid", OLMO),
    ("olmo_hybrid",
     {**OLMO, "attention_bias": True, "tie_word_embeddings": True, "num_key_value_heads": None,
      "linear_allow_neg_eigval": False, "linear_num_key_heads": 6, "linear_conv_kernel_dim": 2,
      "rope_parameters": dict(rope_type="default", rope_theta=300.0)}),
    ("olmo_hybrid",
     {**OLMO, "num_hidden_layers": 3, "hidden_size": 48, "linear_num_key_heads": None,
      "linear_num_value_heads": None, "linear_key_head_dim": None,
      "linear_value_head_dim": None,
      "layer_types": ["full_attention", "linear_attention", "linear_attention"]}),
    ("minimax", MINIMAX),
    ("minimax",
     {**MINIMAX, "full_attn_alpha_factor": 3.5, "linear_attn_alpha_factor": 2.5,
      "mlp_alpha_factor": 1.75, "full_attn_beta_factor": 0.7, "linear_attn_beta_factor": 1.3,
      "mlp_beta_factor": 0.9, "num_experts_per_tok": 3, "sliding_window": 13}),
    ("minimax",
     {**MINIMAX, "head_dim": None, "tie_word_embeddings": True, "num_hidden_layers": 3,
      "layer_types": ["linear_attention", "full_attention", "linear_attention"],
      "num_key_value_heads": 6, "rope_parameters": dict(rope_type="default", rope_theta=300.0)}),
    ("kimi_linear", KIMI),
    ("kimi_linear",
     {**KIMI, "q_lora_rank": 16, "n_shared_experts": 2, "tie_word_embeddings": True,
      "routed_scaling_factor": 0.75, "norm_topk_prob": False,
      "mlp_layer_types": ["sparse", "dense", "sparse"]}),
    ("kimi_linear",
     {**KIMI, "layer_types": None, "linear_attn_config": KIMI_LISTS, "first_k_dense_replace": 2,
      "num_experts_per_tok": 5}),
]  # fmt: skip


VISION = dict(depth=1, hidden_size=16, intermediate_size=16, num_heads=2, patch_size=4,
              out_hidden_size=36, num_position_embeddings=16)  # fmt: skip


@pytest.mark.parametrize(("kind", "tied"), [("qwen3_5", True), ("qwen3_5_moe", False)])
def test_the_text_model_of_one_that_reads_pictures(kind, tied, tmp_path):
    keys = {**QWEN, "rope_parameters": MROPE, "tie_word_embeddings": tied}
    if kind == "qwen3_5_moe":
        keys = {**keys, **EXPERTS}
    config = transformers.AutoConfig.for_model(
        kind, text_config=keys, vision_config=VISION, tie_word_embeddings=tied
    )
    torch.manual_seed(1)
    model = transformers.AutoModelForImageTextToText.from_config(config).eval()
    published.disturb(model)
    model.save_pretrained(tmp_path / "model")
    path = tmp_path / "model" / "model.safetensors"
    weights = safetensors_torch.load_file(path)
    assert any(name.startswith("model.visual.") for name in weights)
    assert "model.language_model.embed_tokens.weight" in weights
    weights["mtp.fc.weight"] = torch.ones(3)
    safetensors_torch.save_file(weights, path, {"format": "pt"})
    tokens = np.random.default_rng(1).integers(0, published.VOCAB, 200)
    wanted = published.definer_logits(model, tokens)
    published.assert_opens_exactly(tmp_path / "model", wanted, tokens)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Small models by their type, written once."""
    made = {}

    def folder(kind):
        if kind not in made:
            made[kind] = tmp_path_factory.mktemp(kind)
            keys = next(keys for name, keys in CASES if name == kind)
            published.random_model(kind, keys).save_pretrained(made[kind])
        return made[kind]

    return folder


REFUSED = [
    ("qwen3_next", dict(hidden_act="gelu"), "hidden_act: want 'silu', got 'gelu'"),
    ("qwen3_next", dict(layer_types=["mamba"] * 4), "layer_types: want 'linear_attention' or"),
    ("qwen3_next", dict(mlp_only_layers=[4]), "mlp_only_layers: want a list of integers from 0"),
    ("qwen3_next", dict(mlp_only_layers=1), "mlp_only_layers: want a list of integers"),
    ("qwen3_next", dict(linear_num_value_heads=5), "linear_num_key_heads: want 0 or a divisor"),
    ("qwen3_next", dict(linear_num_key_heads=3), "in_proj_qkvz.weight.*want 228 rows"),
    ("qwen3_next", dict(num_experts=6), r"experts.5.gate_proj.weight.*got none"),
    ("qwen3_next", dict(moe_intermediate_size=21), "experts.0.gate_proj.*want shape"),
    ("qwen3_next", dict(rope_parameters={"partial_rotary_factor": 0.1}),
     "partial_rotary_factor: want a number up to 1 that makes an even number of the 16"),
    ("qwen3_next", dict(linear_conv_kernel_dim=3), "conv1d.weight.*want shape"),
    ("minimax", dict(mlp_alpha_factor=0.0), "mlp_alpha_factor: want a factor of size"),
    ("minimax", dict(linear_attn_beta_factor="1"), "linear_attn_beta_factor: want a number"),
    ("minimax", dict(head_dim=12), "qkv_proj.weight.*want 216 rows"),
    ("olmo_hybrid", dict(linear_conv_kernel_dim=9), "linear_conv_kernel_dim: want an integer"),
    ("olmo_hybrid", dict(linear_key_head_dim=12), "want 132 rows of it, k_conv1d and v_conv1d"),
    ("kimi_linear", dict(num_expert_group=5), "num_expert_group: want 1, got more"),
    ("kimi_linear", dict(mla_use_nope=False), "mla_use_nope: want true"),
    ("kimi_linear", dict(num_key_value_heads=3), "num_key_value_heads: want num_attention_heads"),
    ("kimi_linear",
     dict(layer_types=None, linear_attn_config={**KIMI_LISTS, "kda_layers": [1, 3]}),
     "kda_layers: want each of 3 layers once"),
    ("kimi_linear", dict(layer_types=None, linear_attn_config={**KIMI_LISTS, "kda_layers": [4]}),
     "kda_layers: want a list of integers from 1 to 3"),
    ("kimi_linear", dict(linear_attn_config={**KIMI_LISTS, "gate_lower_bound": -5}),
     "linear_attn_config: want keys that tarn knows"),
    ("kimi_linear", dict(mlp_layer_types=["moe"] * 3), "mlp_layer_types: want 'dense' or"),
    ("qwen3_5_text", dict(attn_output_gate=False), "attn_output_gate: want true"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "keys", "message"), REFUSED, ids=[str(row[1]) for row in REFUSED])
def test_what_cannot_be_run_is_refused_by_name(kind, keys, message, folders, tmp_path):
    config = json.loads((folders(kind) / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **keys}))
    (tmp_path / "model.safetensors").symlink_to(folders(kind) / "model.safetensors")
    with pytest.raises(Exception, match=message):
        runtime.Model(tmp_path)


def test_a_wrapper_and_its_text_model_agree_on_ties(tmp_path):
    inner = {"model_type": "qwen3_5_text", "tie_word_embeddings": False}
    config = {"model_type": "qwen3_5", "tie_word_embeddings": True, "text_config": inner}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(Exception, match="tie_word_embeddings: want that of text_config"):
        runtime.Model(tmp_path)


DOCS = pathlib.Path(__file__).resolve().parents[3] / "docs" / "published-models.md"


def refused_types():
    """Those that the page lists with what tarn lacks."""
    table = DOCS.read_text().split("These types are refused")[1].split("##")[0]
    names = re.findall("`(.+?)`", "".join(re.findall(r"(?m)^\| (`.+?) \|", table)))
    return [name for name in names if name != "model_type"]  # the head of the table


def test_the_page_lists_the_refused_types():
    assert {"zamba", "zamba2", "bailing_hybrid", "qwen4_exp", "glm5_next"} <= set(refused_types())


@pytest.mark.parametrize("kind", refused_types())
def test_types_with_parts_that_tarn_lacks_are_refused_with_the_reason(kind, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    with pytest.raises(Exception, match=f"model_type: want .*got the text '{kind}'") as error:
        runtime.Model(tmp_path)
    assert "want one of" not in str(error.value)


def test_a_published_minimax_has_no_decays_in_its_file(folders, tmp_path):
    """They follow from the sizes, as in the model that transformers makes of it."""
    weights = safetensors_torch.load_file(folders("minimax") / "model.safetensors")
    kept = {
        name: weight.clone()
        for name, weight in weights.items()
        if not name.endswith(("slope_rate", "_decay"))
    }
    assert len(kept) < len(weights)
    safetensors_torch.save_file(kept, tmp_path / "model.safetensors", {"format": "pt"})
    (tmp_path / "config.json").write_bytes((folders("minimax") / "config.json").read_bytes())
    model = transformers.AutoModelForCausalLM.from_pretrained(folders("minimax")).eval()
    tokens = np.arange(60)
    wanted = published.definer_logits(model, tokens)
    opened = runtime.Model(tmp_path)
    published.assert_close(opened.score(opened.state(), tokens), wanted)
