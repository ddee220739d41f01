"""LFM2 with its mixtures, RecurrentGemma and xLSTM as transformers' own classes write them: logits
of the runtime are those of the classes, and what tarn cannot run is refused by name."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
safetensors_torch = pytest.importorskip("safetensors.torch")
runtime = pytest.importorskip("tarn.runtime", exc_type=ImportError)
published = pytest.importorskip("published")

LFM2 = dict(
    vocab_size=97,
    hidden_size=36,
    intermediate_size=60,
    num_hidden_layers=4,
    num_attention_heads=6,
    num_key_value_heads=2,
    layer_types=["conv", "full_attention", "conv", "conv"],
    block_multiple_of=8,
    pad_token_id=None,
    eos_token_id=None,
)
MOE = dict(
    vocab_size=97,
    hidden_size=36,
    intermediate_size=44,
    moe_intermediate_size=20,
    num_hidden_layers=4,
    num_attention_heads=6,
    num_key_value_heads=3,
    layer_types=["conv", "conv", "full_attention", "conv"],
    num_dense_layers=1,
    num_experts=6,
    num_experts_per_tok=3,
    pad_token_id=None,
    eos_token_id=None,
)
LFM3 = dict(
    vocab_size=97,
    hidden_size=36,
    intermediate_size=44,
    num_hidden_layers=5,
    num_attention_heads=6,
    num_key_value_heads=2,
    head_dim=12,
    layer_types=["conv", "sliding_attention", "full_attention", "conv", "sliding_attention"],
    sliding_window=9,
    pad_token_id=None,
    bos_token_id=None,
    eos_token_id=None,
)
PLAIN = dict(rope_type="default", rope_theta=77.0)
PART = dict(rope_type="proportional", rope_theta=300.0, partial_rotary_factor=0.7)
GRIFFIN = dict(
    vocab_size=97,
    hidden_size=48,
    intermediate_size=70,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=1,
    attention_window_size=11,
    pad_token_id=None,
    eos_token_id=None,
)
XLSTM = dict(
    vocab_size=97,
    hidden_size=48,
    num_hidden_layers=3,
    num_heads=4,
    ffn_round_up_to_multiple_of=8,
    use_cache=False,  # the definer's cache takes widths of multiples of 64 alone
    chunk_size=32,
    pad_token_id=None,
    eos_token_id=None,
)
CASES = [
    ("lfm2", LFM2),
    (
        "lfm2",
        {**LFM2, "conv_bias": True, "conv_L_cache": 7, "tie_word_embeddings": False,
         "block_auto_adjust_ff_dim": False},
    ),
    (
        "lfm2",
        {**LFM2, "layer_types": None, "full_attn_idxs": [0, 3], "conv_L_cache": 2,
         "block_ffn_dim_multiplier": 1.3, "num_key_value_heads": 6, "head_dim": 10},
    ),
    ("lfm2", {**LFM2, "layer_types": ["conv"] * 4, "use_cache": False}),
    ("lfm2_moe", MOE),
    (
        "lfm2_moe",
        {**MOE, "use_expert_bias": False, "norm_topk_prob": False, "num_dense_layers": 0, "num_experts": 7,
         "routed_scaling_factor": 1.7, "conv_bias": True, "tie_word_embeddings": False},
    ),
    (
        "lfm2_moe",
        {**MOE, "num_dense_layers": 9, "num_key_value_heads": 6, "conv_L_cache": 4,
         "rope_parameters": dict(rope_type="linear", rope_theta=500.0, factor=2.0)},
    ),
    ("lfm3", LFM3),
    (
        "lfm3",
        {**LFM3, "use_sandwich_norm": False, "use_attention_gate": False, "attention_bias": True,
         "conv_bias": True, "conv_L_cache": 3, "tie_word_embeddings": False,
         "rope_parameters": {"sliding_attention": PLAIN, "full_attention": PART}},
    ),
    (
        "lfm3",
        {**LFM3, "layer_types": None, "num_key_value_heads": 6, "sliding_window": 250,
         "rope_parameters": {"sliding_attention": PLAIN, "full_attention": PLAIN}},
    ),
    ("recurrent_gemma", GRIFFIN),
    (
        "recurrent_gemma",
        {**GRIFFIN, "lru_width": 60, "attention_bias": True, "tie_word_embeddings": False,
         "block_types": ["attention", "recurrent"], "conv1d_width": 3, "logits_soft_cap": 2.0,
         "num_key_value_heads": 2},
    ),
    (
        "recurrent_gemma",
        {**GRIFFIN, "hidden_size": 40, "num_key_value_heads": None, "num_hidden_layers": 5,
         "attention_window_size": 300,
         "rope_parameters": dict(rope_type="default", rope_theta=77.0, partial_rotary_factor=1.0)},
    ),
    ("xlstm", XLSTM),
    (
        "xlstm",
        {**XLSTM, "gate_soft_cap": 3.0, "output_logit_soft_cap": 2.0,
         "tie_word_embeddings": True, "qk_dim_factor": 1.0},
    ),
    (
        "xlstm",
        {**XLSTM, "num_heads": 2, "v_dim_factor": 1.5, "qk_dim_factor": 0.75,
         "ffn_proj_factor": 1.7, "norm_eps": 1e-3},
    ),
]  # fmt: skip


def changed(folder, **keys):
    path = folder / "config.json"
    config = {**json.loads(path.read_text()), **keys}
    path.write_text(json.dumps({name: v for name, v in config.items() if v != "absent"}))
    return folder


@pytest.fixture
def lfm2(tmp_path):
    published.random_model("lfm2", LFM2).save_pretrained(tmp_path / "lfm2")
    return tmp_path / "lfm2"


def test_the_keys_of_the_first_files_mean_the_same(lfm2):
    """As the authors' own files have them: other names, and keys that nothing reads."""
    changed(
        lfm2,
        layer_types="absent",
        full_attn_idxs=[1],
        intermediate_size="absent",
        block_ff_dim=60,
        tie_word_embeddings="absent",
        tie_embedding=True,
        rope_parameters="absent",
        rope_theta=1000000.0,
        theta=1000000.0,
        num_heads=6,
        conv_dim=36,
        conv_dim_out=36,
        block_dim=36,
        block_norm_eps=1e-5,
        block_use_swiglu=True,
        use_pos_enc=True,
    )
    model = transformers.AutoModelForCausalLM.from_pretrained(lfm2).eval()
    tokens = np.arange(60) % 97
    wanted = published.definer_logits(model, tokens)
    opened = runtime.Model(lfm2)
    published.assert_close(opened.score(opened.state(), tokens), wanted)


def test_fused_products_of_xlstm_are_the_same(tmp_path):
    """Made of a model of single products: a model of fused ones cannot be made by the definer,
    which fails at their first values."""
    model = published.random_model("xlstm", XLSTM)
    model.save_pretrained(tmp_path / "xlstm")
    weights = safetensors_torch.load_file(tmp_path / "xlstm" / "model.safetensors")
    for layer in range(XLSTM["num_hidden_layers"]):
        at = f"backbone.blocks.{layer}."

        def fuse(name, parts, at=at):
            taken = [weights.pop(at + part) for part in parts]
            weights[at + name] = torch.cat(taken)

        inner = [f"mlstm_layer.{part}.weight" for part in ("q", "k", "v", "ogate_preact")]
        fuse("mlstm_layer.qkv_opreact.weight", inner)
        for part in ("weight", "bias"):
            gates = [f"mlstm_layer.{name}_preact.{part}" for name in ("igate", "fgate")]
            fuse(f"mlstm_layer.ifgate_preact.{part}", gates)
        fuse("ffn.proj_up_gate_z.weight", ["ffn.proj_up_gate.weight", "ffn.proj_up.weight"])
    safetensors_torch.save_file(weights, tmp_path / "xlstm" / "model.safetensors", {"format": "pt"})
    changed(tmp_path / "xlstm", weight_mode="fused")
    tokens = np.arange(60) % 97
    opened = runtime.Model(tmp_path / "xlstm")
    given = opened.score(opened.state(), tokens)
    published.assert_close(given, published.definer_logits(model, tokens))


REFUSED = [
    (dict(conv_L_cache=1), "conv_L_cache: want an integer from 2 to 8"),
    (dict(conv_L_cache=4), "conv.weight.* want shape .36, 1, 4., got .36, 1, 3."),
    (
        dict(layer_types=["conv", "full_attention", "conv", "linear"]),
        "layer_types: want 'conv' or 'full_attention', got 'linear'",
    ),
    (dict(layer_types=["conv"] * 3), "layer_types: want a list of 4"),
    (dict(layer_types=["conv"] * 4), "want a tensor 'model.layers.1.conv.in_proj.weight'"),
    (dict(conv_bias=True), "want a tensor 'model.layers.0.conv.in_proj.bias'"),
    (dict(block_ffn_dim_multiplier=-1.0), "block_ffn_dim_multiplier: want a factor"),
    (dict(block_multiple_of=256), "want shape"),
    (dict(full_attn_idxs=[-1]), "full_attn_idxs: want a list of integers"),
    (dict(rope_parameters={"rope_type": "dynamic"}), "rope_type: want 'default', 'linear'"),
    (dict(new_option=3), "want keys that tarn knows .*'new_option': 3"),
]


OTHERS = [
    ("recurrent_gemma", GRIFFIN, dict(lru_width=50), "lru_width: want a multiple of"),
    ("recurrent_gemma", GRIFFIN, dict(lru_width=60), "want shape"),
    (
        "recurrent_gemma",
        GRIFFIN,
        dict(hidden_activation="gelu"),
        "hidden_activation: want 'gelu_pytorch_tanh', got 'gelu'",
    ),
    (
        "recurrent_gemma",
        GRIFFIN,
        dict(block_types=["recurrent", "conv"]),
        "block_types: want 'recurrent' or 'attention', got 'conv'",
    ),
    ("recurrent_gemma", GRIFFIN, dict(head_dim=6), "head_dim: want hidden_size / num_attention"),
    ("xlstm", XLSTM, dict(use_bias=True), "use_bias: want false"),
    ("xlstm", XLSTM, dict(eps=1e-3), "eps: want 1e-6"),
    ("xlstm", XLSTM, dict(embedding_dim=40), "embedding_dim: want 48, got 40"),
    ("xlstm", XLSTM, dict(qk_dim_factor=0.4), "qk_dim_factor: want a factor that makes a multiple"),
    ("xlstm", XLSTM, dict(weight_mode="both"), "weight_mode: want 'single' or 'fused'"),
    ("xlstm", XLSTM, dict(gate_soft_cap=-1.0), "gate_soft_cap: want"),
]


@pytest.mark.parametrize(("kind", "keys", "changes", "message"), OTHERS, ids=str)
def test_other_types_refuse_by_name_too(kind, keys, changes, message, tmp_path):
    published.random_model(kind, keys).save_pretrained(tmp_path / "model")
    with pytest.raises(Exception, match=message):
        runtime.Model(changed(tmp_path / "model", **changes))


@pytest.mark.parametrize(("keys", "message"), REFUSED, ids=[str(keys) for keys, _ in REFUSED])
def test_what_cannot_be_run_is_refused_by_name(keys, message, lfm2):
    with pytest.raises(Exception, match=message):
        runtime.Model(changed(lfm2, **keys))
