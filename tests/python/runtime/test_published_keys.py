"""Keys that a published config.json lacks, holds as null or holds twice: what the classes of
transformers make of them is what the runtime computes. Errors name the file's keys."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
runtime = pytest.importorskip("tarn.runtime", exc_type=ImportError)
published = pytest.importorskip("published")
softmax = pytest.importorskip("test_published_softmax")
deltas = pytest.importorskip("test_published_deltas")
mambas = pytest.importorskip("test_published_mambas")
conv = pytest.importorskip("test_published_conv")

TOKENS = np.random.default_rng(1).integers(0, published.VOCAB, 60)


def written(kind, keys, folder, **changes):
    """A random model's directory with other keys in its config.json; "absent" removes one."""
    published.random_model(kind, keys).save_pretrained(folder)
    path = folder / "config.json"
    config = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({name: v for name, v in config.items() if v != "absent"}))
    return folder


def assert_as_loaded(folder):
    """The runtime and the class read the same directory."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    opened = runtime.Model(folder)
    wanted = published.definer_logits(model, TOKENS)
    published.assert_close(opened.score(opened.state(), TOKENS), wanted)


# A high base: with fast channels alone the number of positions would change nothing.
YARN = dict(rope_type="yarn", rope_theta=1e5, factor=4.0)
LLAMA3 = dict(
    rope_type="llama3", rope_theta=1e5, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0
)
STACKS = [
    ("llama", softmax.WIDE, YARN),
    ("llama", softmax.WIDE, LLAMA3),
    ("mistral", softmax.WIDE, YARN),
    ("mistral", softmax.WIDE, LLAMA3),
    ("qwen2", softmax.DECODER, YARN),
    ("qwen3", softmax.WIDE, LLAMA3),
    ("olmo2", softmax.DECODER, YARN),
    ("smollm3", softmax.WIDE, YARN),
    ("qwen3_moe", {**softmax.WIDE, **softmax.EXPERTS}, YARN),
    ("gpt_neox", softmax.NEOX, {**YARN, "partial_rotary_factor": 1.0}),
    ("qwen3_next", {**deltas.QWEN, **deltas.EXPERTS}, {**YARN, "partial_rotary_factor": 0.5}),
    ("olmo_hybrid", deltas.OLMO, YARN),
    ("minimax", deltas.MINIMAX, YARN),
    ("lfm2", conv.LFM2, YARN),
    ("falcon_h1", mambas.FALCON_H1, YARN),
]


@pytest.mark.parametrize(
    ("kind", "keys", "rope"), STACKS, ids=[f"{row[0]}-{row[2]['rope_type']}" for row in STACKS]
)
def test_scalings_without_positions_take_those_of_the_class(kind, keys, rope, tmp_path):
    keys = {**keys, "rope_parameters": dict(rope)}
    folder = written(kind, keys, tmp_path, rope_parameters=rope, max_position_embeddings="absent")
    assert_as_loaded(folder)


@pytest.mark.parametrize("kind", ["olmo3", "gemma3_text"])
def test_layers_of_two_types_take_them_too(kind, tmp_path):
    full = {**YARN, "rope_theta": 5e5}
    rope = {softmax.FULL: full, softmax.SLIDING: softmax.PLAIN}
    keys = {**softmax.WIDE, "rope_parameters": rope, "sliding_window": 9}
    layers = [softmax.FULL, softmax.SLIDING] * 2
    keys = {**keys, "layer_types": layers}
    again = {softmax.FULL: full, softmax.SLIDING: softmax.PLAIN}
    folder = written(kind, keys, tmp_path, rope_parameters=again, max_position_embeddings="absent")
    assert_as_loaded(folder)


def test_positions_of_the_model_outrank_those_of_its_frequencies(tmp_path):
    rope = {**YARN, "original_max_position_embeddings": 64}
    folder = written(
        "llama",
        {**softmax.WIDE, "rope_parameters": dict(rope)},
        tmp_path,
        rope_parameters=rope,
        original_max_position_embeddings=512,
    )
    assert_as_loaded(folder)


NOTHING = {"rope_theta": None, "rope_type": "default"}


@pytest.mark.parametrize(
    "changes",
    [
        dict(rope_parameters="absent"),
        dict(rope_parameters=None),
        dict(rope_parameters={}),
        dict(rope_parameters={"rope_type": "default"}),
        dict(rope_parameters="absent", rope_theta=300.0),
        dict(rope_parameters=NOTHING),
        dict(rope_parameters=NOTHING, rope_theta=300.0),
    ],
    ids=str,
)
def test_olmo_hybrid_rotates_unless_its_base_is_null(changes, tmp_path):
    assert_as_loaded(written("olmo_hybrid", deltas.OLMO, tmp_path, **changes))


NULLS = [
    ("nemotron_h", mambas.NEMOTRON, dict(hybrid_override_pattern=None)),
    ("nemotron_h", mambas.NEMOTRON,
     dict(layers_block_type=None, hybrid_override_pattern="M-M*-")),
    ("qwen3_moe", {**softmax.WIDE, **softmax.EXPERTS},
     dict(num_local_experts=None, num_experts=5)),
    ("qwen3_moe", {**softmax.WIDE, **softmax.EXPERTS},
     dict(num_local_experts=5, num_experts=None)),
    ("kimi_linear", deltas.KIMI,
     dict(num_experts=None, num_local_experts=5, num_experts_per_token=2,
          num_experts_per_tok=None, num_shared_experts=1, n_shared_experts=None)),
    ("llama", softmax.WIDE, dict(an_option_that_is_not_used=None)),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "keys", "changes"), NULLS, ids=[str(row[2]) for row in NULLS])
def test_null_is_absent(kind, keys, changes, tmp_path):
    model = published.random_model(kind, keys)
    written(kind, keys, tmp_path, **changes)
    opened = runtime.Model(tmp_path)
    wanted = published.definer_logits(model, TOKENS)
    published.assert_close(opened.score(opened.state(), TOKENS), wanted)


ONLY_MIXERS = [
    ("recurrent_gemma", {**conv.GRIFFIN, "num_hidden_layers": 2, "use_cache": False}),
    ("lfm2", {**conv.LFM2, "layer_types": ["conv"] * 4, "use_cache": False}),
]


@pytest.mark.parametrize(("kind", "keys"), ONLY_MIXERS, ids=[row[0] for row in ONLY_MIXERS])
def test_stacks_of_which_no_layer_rotates(kind, keys, tmp_path):
    assert_as_loaded(written(kind, keys, tmp_path))


NAMED = [
    ("llama", dict(rms_norm_eps=0.0), "config.json: rms_norm_eps: want a number from"),
    ("llama", dict(num_key_value_heads=4),
     "config.json: num_key_value_heads: want 0 or a divisor of num_attention_heads = 6"),
    ("llama", dict(hidden_size=1 << 20), "config.json: hidden_size: want an integer from"),
    ("llama", dict(rope_parameters={"rope_theta": 0.5, "rope_type": "default"}),
     "config.json: rope_parameters: rope_theta: want a number from 1"),
    ("llama", dict(rope_parameters={**LLAMA3, "factor": 0.5}),
     "config.json: rope_parameters: factor: want a number from 1"),
    ("gemma3_text", dict(final_logit_softcapping=-1.0), "final_logit_softcapping: want a number"),
    ("qwen3_next", dict(linear_num_value_heads=5),
     "linear_num_key_heads: want 0 or a divisor of linear_num_value_heads = 5"),
    ("falcon_h1", dict(mamba_n_groups=5),
     "mamba_n_groups: want 0 or a divisor of mamba_n_heads = 6"),
    ("falcon_h1", dict(mamba_d_state=1 << 20), "mamba_d_state: want an integer from 1"),
    ("kimi_linear", dict(num_experts_per_token=9),
     "num_experts_per_token: want at most num_experts = 5"),
    ("lfm2_moe", dict(routed_scaling_factor=0.0), "routed_scaling_factor: want a number from"),
]  # fmt: skip
KEYS = {
    "llama": softmax.WIDE,
    "gemma3_text": softmax.WIDE,
    "qwen3_next": {**deltas.QWEN, **deltas.EXPERTS},
    "falcon_h1": mambas.FALCON_H1,
    "kimi_linear": deltas.KIMI,
    "lfm2_moe": conv.MOE,
}


@pytest.mark.parametrize(("kind", "changes", "message"), NAMED, ids=[str(row[1]) for row in NAMED])
def test_errors_name_the_keys_of_the_file(kind, changes, message, tmp_path):
    written(kind, KEYS[kind], tmp_path, **changes)
    with pytest.raises(Exception, match=message):
        runtime.Model(tmp_path)
