"""Directories that transformers' own classes wrote, opened as they are: logits of the
runtime are those of the classes, whatever the split of the text, and what tarn cannot run
is refused by name."""

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
    num_hidden_layers=3,
    num_attention_heads=6,
    num_key_value_heads=2,
    head_dim=10,
    pad_token_id=None,
    eos_token_id=None,
)
LLAMA3 = dict(
    rope_type="llama3",
    rope_theta=500000.0,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=64,
)
YARN = dict(rope_type="yarn", rope_theta=300.0, factor=4.0, original_max_position_embeddings=64)
MAMBA = dict(vocab_size=97, hidden_size=24, num_hidden_layers=3, eos_token_id=None)
GRANITE = dict(
    vocab_size=97,
    hidden_size=24,
    intermediate_size=20,
    shared_intermediate_size=44,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    layer_types=["mamba", "attention", "mamba", "mamba"],
    mamba_n_heads=6,
    mamba_d_head=8,
    mamba_d_state=10,
    num_local_experts=0,
    attention_multiplier=0.3,
    embedding_multiplier=2.5,
    pad_token_id=None,
    eos_token_id=None,
)
CASES = [
    ("llama", DECODER),
    ("llama", {**DECODER, "num_key_value_heads": 6, "tie_word_embeddings": True}),
    ("llama", {**DECODER, "attention_bias": True, "mlp_bias": True, "rope_parameters": LLAMA3}),
    ("llama", {**DECODER, "rope_parameters": dict(rope_type="linear", factor=3.0)}),
    ("mistral", {**DECODER, "sliding_window": 11}),
    ("mistral", {**DECODER, "sliding_window": None, "num_key_value_heads": 1}),
    ("mistral",
     {**DECODER, "sliding_window": 5, "num_key_value_heads": 6, "tie_word_embeddings": True,
      "rope_parameters": YARN}),
    ("qwen2", {name: value for name, value in DECODER.items() if name != "head_dim"}),
    ("qwen2", {**DECODER, "hidden_size": 48, "head_dim": 8, "tie_word_embeddings": True}),
    ("qwen2", {**DECODER, "num_key_value_heads": 1, "rope_parameters": LLAMA3, "rms_norm_eps": 1e-3}),
    ("qwen3", DECODER),
    ("qwen3", {**DECODER, "head_dim": 16, "tie_word_embeddings": True}),
    ("qwen3",
     {**DECODER, "num_key_value_heads": 6, "attention_bias": True, "rope_parameters": YARN}),
    ("olmo2", {name: value for name, value in DECODER.items() if name != "head_dim"}),
    ("olmo2",
     {**DECODER, "num_key_value_heads": 6, "head_dim": 6, "attention_bias": True,
      "tie_word_embeddings": True}),
    ("olmo2", {**DECODER, "num_key_value_heads": 3, "head_dim": 6, "rope_parameters": LLAMA3}),
    ("mamba", {**MAMBA, "state_size": 7}),
    ("mamba", {**MAMBA, "expand": 3, "time_step_rank": 5, "conv_kernel": 3}),
    ("mamba", {**MAMBA, "tie_word_embeddings": False}),
    ("mamba", {**MAMBA, "use_bias": True, "use_conv_bias": False, "state_size": 5}),
    ("mamba2", {**MAMBA, "num_heads": 6, "head_dim": 8, "state_size": 16, "n_groups": 1}),
    (
        "mamba2",
        {**MAMBA, "num_heads": 4, "head_dim": 12, "state_size": 9, "n_groups": 1,
         "tie_word_embeddings": True, "conv_kernel": 2},
    ),
    ("granitemoehybrid", GRANITE),
    (
        "granitemoehybrid",
        {**GRANITE, "position_embedding_type": "rope", "num_local_experts": 5,
         "num_experts_per_tok": 2, "mamba_n_groups": 2, "tie_word_embeddings": True,
         "attention_bias": True, "logits_scaling": 3.0, "residual_multiplier": 0.4},
    ),
    (
        "granitemoehybrid",
        {**GRANITE, "layer_types": ["attention", "mamba", "attention"], "num_hidden_layers": 3,
         "num_key_value_heads": 4, "mamba_proj_bias": True, "mamba_conv_bias": False,
         "time_step_limit": (0.0, 0.05), "num_local_experts": 3, "num_experts_per_tok": 3},
    ),
]  # fmt: skip


def test_shards_and_bf16_files_open(tmp_path):
    rounded = published.random_model("llama", DECODER).to(torch.bfloat16)
    rounded.save_pretrained(tmp_path / "model", max_shard_size="20KB")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "model", dtype=torch.float32
    ).eval()
    assert (tmp_path / "model" / "model.safetensors.index.json").exists()
    tokens = np.arange(40) % 97
    with torch.no_grad():
        wanted = model(torch.tensor(tokens)[None]).logits[0].numpy()
    opened = runtime.Model(tmp_path / "model")
    published.assert_close(opened.score(opened.state(), tokens), wanted)


@pytest.fixture
def llama(tmp_path):
    published.random_model("llama", DECODER).save_pretrained(tmp_path / "llama")
    return tmp_path / "llama"


def changed(folder, **keys):
    path = folder / "config.json"
    config = {**json.loads(path.read_text()), **keys}
    path.write_text(json.dumps({name: v for name, v in config.items() if v != "absent"}))
    return folder


REFUSED = [
    (dict(model_type="t5"), "model_type: want one of llama, .*got the text 't5'"),
    (dict(hidden_act="gelu"), "hidden_act: want 'silu', got 'gelu'"),
    (dict(new_option=3), "want keys that tarn knows .*'new_option': 3"),
    (dict(quantization_config={"bits": 4}), "quantization_config: want null"),
    (dict(hidden_size="absent"), "hidden_size: want an integer .*got no such key"),
    (dict(vocab_size=-1), "vocab_size: want an integer"),
    (dict(num_hidden_layers=4), "want a tensor 'model.layers.3.self_attn.q_proj.weight'"),
    (dict(num_hidden_layers=2), "want a name that config.json asks for"),
    (dict(rope_parameters={"rope_type": "dynamic"}), "rope_type: want 'default', 'linear'"),
    (
        dict(num_attention_heads=5),
        "num_key_value_heads: want 0 or a divisor of num_attention_heads",
    ),
    (dict(head_dim=12), "want shape"),
    (dict(tie_word_embeddings="yes"), "tie_word_embeddings: want true or false"),
]


@pytest.mark.parametrize(("keys", "message"), REFUSED, ids=[str(keys) for keys, _ in REFUSED])
def test_what_cannot_be_run_is_refused_by_name(keys, message, llama):
    with pytest.raises(Exception, match=message):
        runtime.Model(changed(llama, **keys))


def test_a_head_next_to_a_tied_embedding_is_a_copy(llama):
    with pytest.raises(Exception, match="lm_head.weight.*want a copy of the embedding"):
        runtime.Model(changed(llama, tie_word_embeddings=True))
    path = llama / "model.safetensors"
    weights = safetensors_torch.load_file(path)
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()
    safetensors_torch.save_file(weights, path, {"format": "pt"})
    opened = runtime.Model(llama)
    model = transformers.AutoModelForCausalLM.from_pretrained(llama).eval()
    tokens = np.arange(20)
    with torch.no_grad():
        wanted = model(torch.tensor(tokens)[None]).logits[0].numpy()
    published.assert_close(opened.score(opened.state(), tokens), wanted)


@pytest.mark.parametrize(
    ("kind", "removed", "tokens"),
    [("olmo2", "rms_norm_eps", 40), ("mistral", "sliding_window", 4200)],
)
def test_absent_keys_are_those_of_the_class(kind, removed, tokens, tmp_path):
    keys = {name: value for name, value in DECODER.items() if name != "head_dim"}
    published.random_model(kind, {**keys, "num_hidden_layers": 1}).save_pretrained(tmp_path)
    changed(tmp_path, **{removed: "absent"})
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    rows = np.random.default_rng(1).integers(0, 97, tokens)
    opened = runtime.Model(tmp_path)
    wanted = published.definer_logits(model, rows)[-40:]
    published.assert_close(opened.score(opened.state(), rows)[-40:], wanted)


def test_too_many_listed_layers_are_refused(tmp_path):
    keys = dict(GRANITE, layer_types=["mamba", "attention"] * 2)
    published.random_model("granitemoehybrid", keys).save_pretrained(tmp_path)
    changed(tmp_path, num_hidden_layers=4096, layer_types=["mamba", "attention"] * 2048)
    with pytest.raises(Exception, match="at most 512 layers that are listed"):
        runtime.Model(tmp_path)
