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
      "tie_word_embeddings": False, "final_logit_softcapping": 1.5}),
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


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The first model of each type, written once: its folder and its logits."""
    made = {}

    def folder(kind):
        if kind not in made:
            path = tmp_path_factory.mktemp(kind)
            keys = next(keys for name, keys in CASES if name == kind)
            model = published.random_model(kind, keys)
            model.save_pretrained(path)
            made[kind] = path, published.definer_logits(model, TOKENS)
        return made[kind]

    return folder


TOKENS = np.random.default_rng(1).integers(0, published.VOCAB, 200)


def config_of(folder, **keys):
    """That of a folder with other values, of which "absent" is none."""
    config = {**json.loads((folder / "config.json").read_text()), **keys}
    return {name: value for name, value in config.items() if value != "absent"}


# What files of transformers 4 hold in place of what 5 writes.
OLDER = [
    ("smollm3", dict(rope_parameters="absent", rope_theta=2e6, rope_scaling=None)),
    ("smollm3", dict(rope_parameters="absent", no_rope_layers="absent", layer_types="absent")),
    ("phi3", dict(rope_parameters="absent", rope_theta=10000.0, attention_bias=False)),
    ("qwen3_moe", dict(rope_parameters="absent", num_experts=5, num_local_experts="absent",
                       max_window_layers=48)),
    ("olmo3", dict(rope_parameters="absent", rope_theta=500000, layer_types="absent")),
    ("gemma3_text", dict(rope_parameters="absent", rope_theta=1e6, rope_local_base_freq=10000,
                         layer_types="absent", sliding_window_pattern=6)),
    ("gpt_neox", dict(rope_parameters="absent", rotary_emb_base=10000, rotary_pct=0.25)),
    ("gpt2", dict(n_ctx=1024, task_specific_params={"text-generation": {"max_length": 50}})),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "keys"), OLDER, ids=[kind for kind, _ in OLDER])
def test_configurations_of_transformers_4_open(kind, keys, folders, tmp_path):
    folder, wanted = folders(kind)
    (tmp_path / "config.json").write_text(json.dumps(config_of(folder, **keys)))
    (tmp_path / "model.safetensors").symlink_to(folder / "model.safetensors")
    published.assert_opens_exactly(tmp_path, wanted, TOKENS)


def gpt2_as_published(weights):
    """No prefix, and the masks of older classes."""
    weights = {name.removeprefix("transformer."): tensor for name, tensor in weights.items()}
    for layer in range(GPT2["n_layer"]):
        weights[f"h.{layer}.attn.bias"] = torch.ones(1, 1, 4, 4)
    return weights


def gpt_neox_as_published(weights):
    weights = {name.replace("lm_head.", "embed_out."): tensor for name, tensor in weights.items()}
    for layer in range(NEOX["num_hidden_layers"]):
        attention = f"gpt_neox.layers.{layer}.attention."
        weights[attention + "bias"] = torch.ones(1, 1, 4, 4)
        weights[attention + "masked_bias"] = torch.tensor(-1e9)
        weights[attention + "rotary_emb.inv_freq"] = torch.ones(1)
    return weights


@pytest.mark.parametrize(
    ("kind", "written"), [("gpt2", gpt2_as_published), ("gpt_neox", gpt_neox_as_published)]
)
def test_names_of_older_files_open(kind, written, folders, tmp_path):
    folder, wanted = folders(kind)
    weights = written(safetensors_torch.load_file(folder / "model.safetensors"))
    safetensors_torch.save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    (tmp_path / "config.json").write_text(json.dumps(config_of(folder)))
    published.assert_opens_exactly(tmp_path, wanted, TOKENS)


def test_experts_in_one_tensor_and_one_by_one_are_the_same(folders, tmp_path):
    folder, wanted = folders("qwen3_moe")
    weights = safetensors_torch.load_file(folder / "model.safetensors")
    experts = "model.layers.0.mlp.experts."
    one_by_one = f"{experts}0.gate_proj.weight" in weights
    for layer in range(DECODER["num_hidden_layers"]):
        experts = f"model.layers.{layer}.mlp.experts."
        if one_by_one:
            maps = {
                name: [weights.pop(f"{experts}{e}.{name}_proj.weight") for e in range(5)]
                for name in ("gate", "up", "down")
            }
            both = [torch.cat(pair) for pair in zip(maps["gate"], maps["up"], strict=True)]
            weights[experts + "gate_up_proj"] = torch.stack(both)
            weights[experts + "down_proj"] = torch.stack(maps["down"])
        else:
            both, down = (weights.pop(experts + n) for n in ("gate_up_proj", "down_proj"))
            for e in range(5):
                halves = both[e].chunk(2)
                for name, part in zip(("gate", "up", "down"), (*halves, down[e]), strict=True):
                    weights[f"{experts}{e}.{name}_proj.weight"] = part.contiguous()
    safetensors_torch.save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    (tmp_path / "config.json").write_text(json.dumps(config_of(folder)))
    published.assert_opens_exactly(tmp_path, wanted, TOKENS)


VISION = dict(
    hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
    image_size=16, patch_size=4,
)  # fmt: skip


@pytest.mark.parametrize("older", [False, True])
def test_gemma3_is_its_text_model(older, tmp_path):
    text = next(keys for kind, keys in CASES if kind == "gemma3_text")
    config = transformers.AutoConfig.for_model(
        "gemma3", text_config=text, vision_config=VISION, mm_tokens_per_image=4
    )
    torch.manual_seed(1)
    model = transformers.AutoModelForImageTextToText.from_config(config).eval()
    published.disturb(model)
    model.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    weights = safetensors_torch.load_file(path)
    assert any("vision_tower." in name for name in weights)
    if older:  # or newer: the other of the two forms
        wrapped = next(n for n in weights if n.endswith("embed_tokens.weight"))
        prefix = wrapped.removesuffix("embed_tokens.weight")
        other = {"model.language_model.": "language_model.model."}.get(
            prefix, "model.language_model."
        )
        weights = {
            name.replace(prefix, other, 1) if name.startswith(prefix) else name: tensor
            for name, tensor in weights.items()
        }
        safetensors_torch.save_file(weights, path, {"format": "pt"})
    published.assert_opens_exactly(tmp_path, published.definer_logits(model, TOKENS), TOKENS)


LONG = dict(rope_type="longrope", short_factor=[1.0] * 3, long_factor=[2.0] * 3, factor=2.0)
REFUSED = [
    ("smollm3", dict(no_rope_layers=[1, 0]), "no_rope_layers: want a list of at least 4 numbers"),
    ("smollm3", dict(no_rope_layers=[1, 0, 2, 1]), "no_rope_layers: want a list of integers"),
    ("smollm3", dict(layer_types=[SLIDING] * 4), "layer_types: want 'full_attention' without use"),
    ("smollm3", dict(layer_types=["linear_attention"] * 4), "layer_types: want 'sliding_attention'"),
    ("phi3", dict(rope_parameters=LONG), "rope_type: want .*change with the length of the text"),
    ("phi3", dict(rope_parameters=YARN), "rope_parameters: want rope_type 'default'"),
    ("phi3", dict(num_key_value_heads=3), "qkv_proj.weight.*want 72 rows"),
    ("phi3", dict(intermediate_size=53), "gate_up_proj.weight.*want 106 rows"),
    ("qwen3_moe", dict(num_experts=0, num_local_experts="absent"), "num_experts: want an integer"),
    ("qwen3_moe", dict(mlp_only_layers=[4]), "mlp_only_layers: want a list of integers from 0 to 3"),
    ("qwen3_moe", dict(num_experts_per_tok=6), "num_experts_per_tok: want at most num_local_experts = 5"),
    ("olmo3", dict(rope_parameters={SLIDING: YARN}), "rope_type: want 'default', got 'yarn'"),
    ("olmo3", dict(rope_parameters={FULL: {**YARN, "truncate": False}}), "truncate: want true"),
    ("olmo3", dict(rope_parameters={"rope_theta": 1.0}), "want keys that tarn knows .*rope_theta"),
    ("gemma3_text", dict(hidden_activation="gelu"), "hidden_activation: want 'gelu_pytorch_tanh'"),
    ("gemma3_text", dict(attn_logit_softcapping=3.0), "attn_logit_softcapping: want null"),
    ("gemma3_text", dict(use_bidirectional_attention=True), "use_bidirectional_attention: want"),
    ("gemma3_text", dict(query_pre_attn_scalar=0), "query_pre_attn_scalar: want a number above 0"),
    ("gemma3_text", dict(sliding_window=0), "sliding_window: want an integer from 1"),
    ("gpt_neox", dict(hidden_act="silu"), "hidden_act: want 'gelu', 'gelu_new'"),
    ("gpt_neox", dict(num_attention_heads=7), "num_attention_heads: want a divisor of the width 48"),
    ("gpt_neox", dict(num_attention_heads=4096), "num_attention_heads: want a divisor of the width 48"),
    ("gpt_neox", dict(rope_parameters={"partial_rotary_factor": 0.3, "rope_theta": "1"}),
     "rope_theta: want a number"),
    ("gpt2", dict(add_cross_attention=True), "add_cross_attention: want false"),
    ("gpt2", dict(n_positions=100), "pos_embedding|wpe.weight.*want shape"),
    ("gpt2", dict(n_inner=11), "c_fc.weight.*want shape .30, 11"),
    ("gpt2", dict(n_layer=1 << 40), "n_layer: want an integer from 1 to 4096"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "keys", "message"), REFUSED, ids=[str(row[1]) for row in REFUSED])
def test_what_cannot_be_run_is_refused_by_name(kind, keys, message, folders, tmp_path):
    folder, _ = folders(kind)
    (tmp_path / "config.json").write_text(json.dumps(config_of(folder, **keys)))
    (tmp_path / "model.safetensors").symlink_to(folder / "model.safetensors")
    with pytest.raises(Exception, match=message):
        runtime.Model(tmp_path)
