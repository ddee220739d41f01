"""Published Mamba models and hybrids of Mamba, opened as they are: logits of the runtime are
those of transformers' classes, and what tarn cannot run is refused by name."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
runtime = pytest.importorskip("tarn.runtime", exc_type=ImportError)
published = pytest.importorskip("published")

WORDS = dict(vocab_size=97, pad_token_id=None, bos_token_id=None, eos_token_id=None)
MAMBA2 = dict(WORDS, hidden_size=24, num_hidden_layers=3, num_heads=6, head_dim=8, state_size=9)
FALCON_MAMBA = dict(WORDS, hidden_size=24, num_hidden_layers=3, state_size=7)
HYBRID = dict(
    WORDS,
    hidden_size=24,
    intermediate_size=44,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
)
PARTS = dict(mamba_n_heads=6, mamba_d_head=8, mamba_d_state=10)
FALCON_H1 = dict(HYBRID, **PARTS, head_dim=10, mamba_d_ssm=48)
FACTORS = dict(
    attention_in_multiplier=0.7,
    attention_out_multiplier=0.9375,
    embedding_multiplier=5.656854249492381,
    key_multiplier=0.39,
    lm_head_multiplier=0.3,
    mlp_multipliers=[0.88, 0.5859375],
    ssm_in_multiplier=1.25,
    ssm_multipliers=[0.35, 0.25, 0.45, 0.5, 0.55],
    ssm_out_multiplier=0.23570226039551587,
)
BAMBA = dict(HYBRID, **PARTS, head_dim=8, mamba_n_groups=2, attn_layer_indices=[1])
JAMBA = dict(
    HYBRID,
    num_hidden_layers=5,
    attn_layer_period=4,
    attn_layer_offset=1,
    num_experts=4,
    mamba_d_state=6,
)
NEMOTRON = dict(
    WORDS,
    hidden_size=24,
    intermediate_size=44,
    layers_block_type=["linear_attention", "mlp", "linear_attention", "full_attention", "mlp"],
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=10,
    mamba_num_heads=6,
    mamba_head_dim=7,
    ssm_state_size=10,
    n_groups=2,
)
EXPERTS = dict(
    layers_block_type=["linear_attention", "moe", "full_attention", "linear_attention", "moe"],
    n_routed_experts=6,
    num_experts_per_tok=2,
    moe_intermediate_size=20,
    moe_shared_expert_intermediate_size=28,
)
CASES = [
    ("mamba2", {**MAMBA2, "n_groups": 3, "time_step_limit": (0.0, 0.02)}),
    ("mamba2", {**MAMBA2, "n_groups": 2, "time_step_limit": (0.01, 0.05), "conv_kernel": 3}),
    ("mamba2", {**MAMBA2, "n_groups": 6, "tie_word_embeddings": True}),
    ("mamba2", {**MAMBA2, "n_groups": 2, "use_bias": True, "use_conv_bias": False}),
    ("falcon_mamba", FALCON_MAMBA),
    ("falcon_mamba", {**FALCON_MAMBA, "mixer_rms_eps": 0.3, "time_step_rank": 5, "expand": 3}),
    ("falcon_mamba", {**FALCON_MAMBA, "tie_word_embeddings": False, "conv_kernel": 2,
                      "use_bias": True}),
    ("falcon_h1", {**FALCON_H1, **FACTORS}),
    (
        "falcon_h1",
        {**FALCON_H1, **FACTORS, "mamba_rms_norm": True, "mamba_n_groups": 2,
         "attention_bias": True, "mlp_bias": True, "mamba_proj_bias": True,
         "projectors_bias": True, "mamba_conv_bias": False},
    ),
    (
        "falcon_h1",
        {**FALCON_H1, "mamba_rms_norm": True, "mamba_norm_before_gate": False,
         "mamba_d_ssm": None, "mamba_n_groups": 3, "tie_word_embeddings": True,
         "rope_parameters": dict(rope_type="default", rope_theta=1e11),
         "time_step_limit": (0.2, 0.8), "num_key_value_heads": 1},
    ),
    ("bamba", BAMBA),
    ("bamba", {**BAMBA, "attention_bias": True, "mlp_bias": True, "mamba_n_groups": 1,
               "mamba_proj_bias": True}),
    (
        "bamba",
        {**BAMBA, "attn_layer_indices": [0, 2], "tie_word_embeddings": True, "mamba_d_conv": 3,
         "time_step_limit": (0.0, 0.7), "num_key_value_heads": 4},
    ),
    ("jamba", JAMBA),
    ("jamba", {**JAMBA, "num_experts": 1, "mamba_dt_rank": 5, "tie_word_embeddings": True,
               "mamba_proj_bias": True, "mamba_conv_bias": False}),
    (
        "jamba",
        {**JAMBA, "expert_layer_period": 3, "expert_layer_offset": 0, "num_experts_per_tok": 3,
         "attn_layer_period": 2, "num_key_value_heads": 4, "rms_norm_eps": 0.01},
    ),
    ("nemotron_h", NEMOTRON),
    ("nemotron_h", {**NEMOTRON, "mlp_bias": True, "time_step_min": 0.5, "n_groups": 1,
                    "use_bias": True}),
    ("nemotron_h", {**NEMOTRON, **EXPERTS}),
    (
        "nemotron_h",
        {**NEMOTRON, **EXPERTS, "norm_topk_prob": False, "routed_scaling_factor": 2.5,
         "tie_word_embeddings": True, "num_experts_per_tok": 3},
    ),
]  # fmt: skip


def changed(folder, **keys):
    path = folder / "config.json"
    config = {**json.loads(path.read_text()), **keys}
    path.write_text(json.dumps({name: v for name, v in config.items() if v != "absent"}))
    return folder


def saved(kind, keys, folder):
    model = published.random_model(kind, keys)
    model.save_pretrained(folder)
    return model


def test_patterns_of_letters_are_those_of_words(tmp_path):
    """Nemotron-H's files before transformers 5, with layers that it does not run."""
    model = saved("nemotron_h", NEMOTRON, tmp_path)
    tokens = np.arange(30) % 97
    changed(tmp_path, layers_block_type="absent", hybrid_override_pattern="M-M*-")
    changed(tmp_path, num_hidden_layers=5, mtp_hybrid_override_pattern="*E")
    opened = runtime.Model(tmp_path)
    wanted = published.definer_logits(model, tokens)
    published.assert_close(opened.score(opened.state(), tokens), wanted)


def test_published_files_of_falcon_h1_open(tmp_path):
    """With the keys that its own files have besides."""
    model = saved("falcon_h1", {**FALCON_H1, **FACTORS}, tmp_path)
    changed(tmp_path, mamba_use_mlp=True, attn_layer_indices=None, mlp_expansion_factor=8)
    changed(tmp_path, time_step_limit="absent", rope_parameters="absent", rope_theta=10000.0)
    tokens = np.arange(30) % 97
    opened = runtime.Model(tmp_path)
    wanted = published.definer_logits(model, tokens)
    published.assert_close(opened.score(opened.state(), tokens), wanted)


REFUSED = [
    ("mamba2", MAMBA2 | dict(n_groups=2), [
        (dict(time_step_limit=[0.5, 0.1]), r"time_step_limit: want \[least, most\]"),
        (dict(time_step_limit=[0.0]), r"time_step_limit: want \[least, most\]"),
        (dict(time_step_limit=[0.0, 1e9]), "time_step_limit: want a number from 0 to 1e.06"),
        (dict(n_groups=4), "n_groups: want 0 or a divisor of num_heads"),
        (dict(n_groups=3), "in_proj.weight.* want shape"),
        (dict(use_bias=True), "want a tensor .*in_proj.bias"),
        (dict(use_conv_bias=False), "conv1d.bias.*want a name that config.json asks for"),
    ]),
    ("falcon_h1", FALCON_H1, [
        (dict(ssm_multipliers=[1.0, 2.0]), "ssm_multipliers: want a list of 5 numbers"),
        (dict(key_multiplier=1e39), "key_multiplier: want factors of size at most 1e.06"),
        (dict(mlp_multipliers=[1.0, "x"]), "mlp_multipliers: want a list of 2 numbers"),
        (dict(key_multiplier="x"), "key_multiplier: want a number"),
        (dict(projectors_bias=True), "want a tensor .*mamba.out_proj.bias"),
        (dict(mamba_d_ssm=47), "mamba_n_heads: want mamba_n_heads . mamba_d_head = 47"),
        (dict(mamba_rms_norm=True), "want a tensor 'model.layers.0.mamba.norm.weight'"),
    ]),
    ("bamba", BAMBA, [
        (dict(attn_layer_indices=[3]), "attn_layer_indices: want a list of integers from 0 to 2"),
        (dict(attn_rotary_emb=8), "attn_rotary_emb: want 4, got 8"),
        (dict(attn_layer_indices=[]), "want a tensor 'model.layers.1.mamba.in_proj.weight'"),
    ]),
    ("jamba", JAMBA, [
        (dict(attn_layer_offset=4), "attn_layer_offset: want an integer from 0 to 3"),
        (dict(mamba_proj_bias=True), "want a tensor .*in_proj.bias"),
        (dict(num_experts=5), "experts.4.gate_proj.weight"),
        (dict(num_experts=3), "want a name that config.json asks for"),
    ]),
    ("nemotron_h", NEMOTRON | EXPERTS, [
        (dict(layers_block_type=["moe"]), "want a mixer before each feed-forward block"),
        (dict(layers_block_type=["moe", 3]), "layers_block_type: want a list of 2 texts"),
        (dict(layers_block_type="M"), "layers_block_type: want a list of at most"),
        (dict(layers_block_type=["rwkv"]), "want blocks of mamba, attention, mlp and moe"),
        (dict(layers_block_type="absent", hybrid_override_pattern="MX"), "got 'X'"),
        (dict(layers_block_type="absent"), "layers_block_type: want 1 to .* blocks, got 0"),
        (dict(n_group=2), "n_group: want an integer from 1 to 1"),
        (dict(moe_latent_size=8), "moe_latent_size: want null"),
        (dict(mlp_bias=True), "mlp_bias: want false in a model with experts"),
        (dict(mlp_hidden_act="silu"), "mlp_hidden_act: want 'relu2'"),
        (dict(rms_norm_eps=0.1), "rms_norm_eps: want layer_norm_epsilon"),
        (dict(use_bias=True), "want a tensor .*in_proj.bias"),
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "keys", "changes"), REFUSED, ids=[kind for kind, _, _ in REFUSED])
def test_what_cannot_be_run_is_refused_by_name(kind, keys, changes, tmp_path):
    saved(kind, keys, tmp_path)
    runtime.Model(tmp_path)
    config = (tmp_path / "config.json").read_text()
    for change, message in changes:
        (tmp_path / "config.json").write_text(config)
        with pytest.raises(Exception, match=message):
            runtime.Model(changed(tmp_path, **change))


def test_zamba2_is_refused_with_its_reason(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(dict(model_type="zamba2")))
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(Exception, match="model_type: want .*shared blocks.*got the text 'zamba2'"):
        runtime.Model(tmp_path)
