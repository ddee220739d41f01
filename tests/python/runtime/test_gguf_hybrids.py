"""GGUF files of hybrids whose layers differ by their heads of keys, made by the converter's
rules from random models of the classes that define them: logits of the runtime are those of
the classes, and of the published directory; exported again, files and directories give the
same; what cannot be run is refused by name."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
gguf = pytest.importorskip("gguf")
runtime = pytest.importorskip("tarn.runtime", exc_type=ImportError)
published = pytest.importorskip("published")
ways = pytest.importorskip("published_ways")
hybrids = pytest.importorskip("gguf_hybrids")
files = pytest.importorskip("gguf_files")
recurrent = pytest.importorskip("test_gguf_recurrent")

Q8_0, BF16 = gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.BF16
WORDS = dict(vocab_size=97, pad_token_id=None, bos_token_id=None, eos_token_id=None)
SMALL = 1e-9  # as good as no limit; the class draws from log(time_step_min)
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
    time_step_min=SMALL,
)
MIXED = dict(
    layers_block_type=["linear_attention", "moe", "full_attention", "linear_attention", "moe"],
    n_routed_experts=6,
    num_experts_per_tok=2,
    moe_intermediate_size=20,
    moe_shared_expert_intermediate_size=28,
)
LFM2 = dict(
    WORDS,
    hidden_size=36,
    intermediate_size=60,
    num_hidden_layers=4,
    num_attention_heads=6,
    num_key_value_heads=2,
    layer_types=["conv", "full_attention", "conv", "conv"],
    block_multiple_of=8,
)
LFM2_MOE = dict(
    WORDS,
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
)
JAMBA = dict(
    WORDS,
    hidden_size=24,
    intermediate_size=44,
    num_hidden_layers=5,
    num_attention_heads=4,
    num_key_value_heads=2,
    attn_layer_period=4,
    attn_layer_offset=1,
    num_experts=4,
    mamba_d_state=6,
)
KIMI = dict(
    WORDS,
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
    linear_num_heads=6,
    linear_head_dim=10,
    layer_types=["linear_attention", "full_attention", "linear_attention"],
)
PLAIN = dict(rope_type="default", rope_theta=77.0)
LINEAR = dict(rope_type="linear", rope_theta=500.0, factor=2.0)
# Type, options, and whether llama.cpp runs them, so that they can be written.
CASES = [
    ("nemotron_h", NEMOTRON, True),
    ("nemotron_h", {**NEMOTRON, "mlp_bias": True, "n_groups": 1, "conv_kernel": 3,
                    "layers_block_type": ["full_attention", "linear_attention", "mlp"],
                    "layer_norm_epsilon": 1e-3, "num_key_value_heads": 4}, True),
    ("nemotron_h", {**NEMOTRON, "use_bias": True, "n_groups": 3}, False),
    ("nemotron_h", {**NEMOTRON, **MIXED}, True),
    ("nemotron_h", {**NEMOTRON, **MIXED, "norm_topk_prob": False, "routed_scaling_factor": 2.5,
                    "num_experts_per_tok": 3, "num_key_value_heads": 1}, True),
    ("nemotron_h", {**NEMOTRON, **MIXED, "use_conv_bias": False, "num_experts_per_tok": 6,
                    "layers_block_type": ["linear_attention", "moe", "full_attention"]}, True),
    ("lfm2", LFM2, True),
    ("lfm2", {**LFM2, "conv_L_cache": 7, "tie_word_embeddings": False, "rope_parameters": PLAIN,
              "block_auto_adjust_ff_dim": False, "norm_eps": 1e-3}, True),
    ("lfm2", {**LFM2, "conv_L_cache": 2, "block_ffn_dim_multiplier": 1.3, "head_dim": 10,
              "num_key_value_heads": 6, "layer_types": ["full_attention"] * 2 + ["conv"] * 2},
     False),
    ("lfm2_moe", LFM2_MOE, True),
    ("lfm2_moe", {**LFM2_MOE, "num_dense_layers": 0, "num_experts": 7, "num_experts_per_tok": 1,
                  "norm_eps": 1e-3}, True),
    ("lfm2_moe", {**LFM2_MOE, "num_dense_layers": 2, "num_key_value_heads": 6, "conv_L_cache": 4,
                  "rope_parameters": LINEAR, "num_experts_per_tok": 6}, True),
    ("jamba", JAMBA, True),
    ("jamba", {**JAMBA, "num_experts": 1, "mamba_dt_rank": 5, "tie_word_embeddings": True,
               "mamba_proj_bias": True, "mamba_conv_bias": False}, False),
    ("jamba", {**JAMBA, "expert_layer_period": 3, "expert_layer_offset": 0, "mamba_d_conv": 3,
               "num_experts_per_tok": 3, "attn_layer_period": 2, "num_key_value_heads": 4,
               "rms_norm_eps": 0.01}, True),
    ("kimi_linear", KIMI, True),
    ("kimi_linear", {**KIMI, "n_shared_experts": 2, "routed_scaling_factor": 0.75,
                     "linear_conv_kernel_dim": 3, "num_experts_per_tok": 5,
                     "mlp_layer_types": ["dense", "dense", "sparse"], "num_hidden_layers": 3,
                     "layer_types": ["full_attention", "linear_attention", "full_attention"]},
     True),
    ("kimi_linear", {**KIMI, "q_lora_rank": 16, "mlp_layer_types": ["sparse"] * 3}, False),
]  # fmt: skip
NAMES = recurrent.names_of(CASES)
TOKENS = recurrent.TOKENS


def options(kind, index=0):
    return [keys for name, keys, _ in CASES if name == kind][index]


def saved(kind, keys, folder):
    model = published.random_model(kind, keys)
    model.save_pretrained(folder)
    if keys.get("time_step_min") == SMALL:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"time_step_min": 0.0}))
    return model


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Small models by type and options, written once."""
    made = {}

    def folder(kind, index=0, **keys):
        name = f"{kind}-{index}-{len(keys)}"
        if name not in made:
            made[name] = tmp_path_factory.mktemp(name) / "model"
            saved(kind, options(kind, index) | keys, made[name])
        return made[name]

    return folder


def assert_file_as_converted(path, folder):
    """A file of tarn's has the names, shapes and, within roundings, numbers of the
    converter's."""
    wanted = hybrids.file_tensors(folder)
    given = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    # Without biases a published convolution has some of 0 where tarn writes it.
    assert {name for name in set(given) - set(wanted) if not name.endswith("conv1d.bias")} == set()
    for name, x in wanted.items():
        tensor = given[name]
        assert tensor.shape.tolist() == list(x.shape)[::-1], name
        own = torch.from_numpy(np.array(tensor.data)).reshape(x.shape)
        torch.testing.assert_close(own, x, rtol=3e-6, atol=1e-7, msg=name)


@pytest.mark.parametrize(("kind", "keys", "runs"), CASES, ids=NAMES)
def test_a_converted_model(kind, keys, runs, tmp_path):
    model = saved(kind, keys, tmp_path / "model")
    wanted = published.definer_logits(model, TOKENS)
    file = hybrids.convert(tmp_path / "model", tmp_path / "model.gguf")
    recurrent.assert_opens(file, wanted)
    published.assert_close(recurrent.logits(tmp_path / "model"), recurrent.logits(file))
    if not runs:
        status, told = ways.tarn_program(
            "export", tmp_path / "model", "--out", tmp_path / "own.gguf", "--to", "gguf"
        )
        assert status == 3 and "as llama.cpp runs it" in told and told.count("\n") == 1, told
        assert not (tmp_path / "own.gguf").exists()
        return
    own = recurrent.exported(
        tmp_path / "model", tmp_path / "own.gguf", "--to", "gguf", "--type", "f32"
    )
    assert_file_as_converted(own, tmp_path / "model")
    published.assert_close(recurrent.logits(own), wanted)
    back = recurrent.exported(file, tmp_path / "back", "--to", "hf")
    published.assert_close(recurrent.logits(back), wanted)
    again = recurrent.exported(back, tmp_path / "again.gguf", "--to", "gguf", "--type", "f32")
    published.assert_close(recurrent.logits(again), wanted)


def as_converter_reads(folder):
    """config.json with the keys of the files that the converter knows."""
    path = folder / "config.json"
    c = json.loads(path.read_text())
    if c["model_type"] == "nemotron_h" and not hybrids.mixed(c):
        letters = "".join(hybrids.LETTERS[word] for word in c.pop("layers_block_type"))
        c["hybrid_override_pattern"] = letters
        c = {name: value for name, value in c.items() if name != "num_experts_per_tok"}
        c["num_hidden_layers"] = len(letters)
    if c["model_type"] == "jamba" and c["mamba_dt_rank"] == "auto":
        del c["mamba_dt_rank"]
    if c["model_type"] == "kimi_linear":
        layers = range(1, c["num_hidden_layers"] + 1)
        full = [i for i in layers if c["layer_types"][i - 1] == "full_attention"]
        c["linear_attn_config"] = dict(
            full_attn_layers=full,
            kda_layers=[i for i in layers if i not in full],
            head_dim=c["linear_head_dim"],
            num_heads=c["linear_num_heads"],
            short_conv_kernel_size=c["linear_conv_kernel_dim"],
        )
        c["moe_router_activation_func"] = "sigmoid"
        c["first_k_dense_replace"] = sum(word == "dense" for word in c["mlp_layer_types"])
    path.write_text(json.dumps(c))


def as_converter_names(folder):
    """Tensors by the names of published files."""
    from safetensors.torch import load_file, save_file

    if json.loads((folder / "config.json").read_text())["model_type"] != "kimi_linear":
        return
    path = folder / "model.safetensors"
    renamed = {}
    for name, x in load_file(path).items():
        for part in ("gate_proj", "up_proj", "down_proj"):
            name = name.replace(f"block_sparse_moe.{part}", f"mlp.{part}")
        renamed[name.replace("moe.gate.e_score", "moe.e_score")] = x
    save_file(renamed, path, {"format": "pt"})


@pytest.mark.skipif(files.LLAMA_CPP is None, reason="no sources of llama.cpp (TARN_LLAMA_CPP)")
@pytest.mark.parametrize(("kind", "keys", "runs"), CASES, ids=NAMES)
def test_the_converter_itself_gives_the_same(kind, keys, runs, tmp_path):
    model = saved(kind, keys, tmp_path / "model")
    ours = files.read_tensors(hybrids.convert(tmp_path / "model", tmp_path / "ours.gguf"))
    as_converter_reads(tmp_path / "model")
    as_converter_names(tmp_path / "model")
    config = hybrids.config_of(tmp_path / "model")
    if kind == "nemotron_h" and config["mamba_num_heads"] * config["mamba_head_dim"] % 64:
        pytest.skip("the converter wants an inner size that is a multiple of 64")
    theirs_file = files.convert(tmp_path / "model", tmp_path / "theirs.gguf")
    theirs = files.read_tensors(theirs_file)
    assert set(ours) == set(theirs)
    for name, x in ours.items():
        np.testing.assert_allclose(theirs[name], x, rtol=3e-6, atol=1e-7, err_msg=name)
    wanted = published.definer_logits(model, TOKENS)
    published.assert_close(recurrent.logits(theirs_file), wanted)


set_keys, key_of = recurrent.set_keys, recurrent.key_of
integers, change_tensor = recurrent.integers, recurrent.change_tensor
set_tensors = recurrent.set_tensors


def later_blocks(keys, tensors):
    """A block that predicts later tokens, as the converter folds it."""
    arch = keys["general.architecture"].value
    blocks = keys[f"{arch}.block_count"].value
    keys[f"{arch}.block_count"] = key_of("UINT32", blocks + 1)
    keys[f"{arch}.nextn_predict_layers"] = key_of("UINT32", 1)
    for name, last in (("attention.head_count_kv", 2), ("feed_forward_length", 20)):
        values = keys[f"{arch}.{name}"].value
        keys[f"{arch}.{name}"] = integers([*values, last])
    for name in ("attn_norm", "attn_q", "nextn.enorm", "nextn.eh_proj"):
        tensors[f"blk.{blocks}.{name}.weight"] = torch.ones(3, 5)


def without_ones(keys, tensors):
    """Leading sizes of 1, which quantising drops."""
    for name, x in tensors.items():
        while x.dim() > 1 and x.shape[0] == 1:
            x = x[0]
        tensors[name] = x


def older_latent(keys, tensors):
    """kv_b_proj as one, as files had it before llama.cpp kept latent keys."""
    for name in [name for name in tensors if name.endswith("attn_k_b.weight")]:
        values = tensors.pop(name.replace("k_b", "v_b"))
        both = torch.cat([tensors.pop(name).transpose(1, 2), values], 1)
        tensors[name.replace("k_b", "kv_b")] = both.reshape(-1, both.shape[-1]).contiguous()


ALIKE = [
    ("nemotron_h", 3, later_blocks),
    ("nemotron_h", 0, set_keys(attention__layer_norm_rms_epsilon=key_of("FLOAT32", 1e-5),
                               attention__layer_norm_epsilon=None)),
    ("nemotron_h", 3, set_keys(expert_feed_forward_length=integers([0, 20, 0, 0, 20]),
                               expert_used_count=integers([0, 2, 0, 0, 2]))),
    ("nemotron_h", 3, set_keys(expert_weights_scale=None)),
    ("lfm2", 0, set_keys(attention__sliding_window=key_of("UINT32", 0))),
    ("jamba", 1, set_keys(expert_count=None, expert_used_count=None)),
    ("kimi_linear", 0, without_ones),
    ("kimi_linear", 0, older_latent),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "index", "edit"), ALIKE)
def test_files_that_say_the_same_otherwise(kind, index, edit, folders, tmp_path):
    folder = folders(kind, index)
    file = hybrids.convert(folder, tmp_path / "model.gguf", edit=edit)
    published.assert_close(recurrent.logits(file), recurrent.logits(folder))


def test_a_head_that_is_the_embedding(folders, tmp_path):
    """Nemotron-H's type always has one; a file may leave it out."""

    def tie(keys, tensors):
        tensors["output.weight"] = tensors["token_embd.weight"]

    folder = folders("nemotron_h")
    tied = hybrids.convert(folder, tmp_path / "tied.gguf", edit=tie)
    left = hybrids.convert(
        folder, tmp_path / "left.gguf", edit=lambda _, tensors: tensors.pop("output.weight")
    )
    np.testing.assert_array_equal(recurrent.logits(left), recurrent.logits(tied))


WIDE = {
    "nemotron_h": dict(hidden_size=64, intermediate_size=96, mamba_num_heads=4, mamba_head_dim=32),
    "lfm2_moe": dict(hidden_size=96, intermediate_size=64, moe_intermediate_size=32),
    "jamba": dict(hidden_size=64, intermediate_size=96),
    "kimi_linear": dict(hidden_size=96, kv_lora_rank=32, qk_nope_head_dim=32, v_head_dim=32,
                        moe_intermediate_size=32),
}  # fmt: skip


@pytest.mark.parametrize("kind", WIDE)
def test_stored_numbers_are_those_of_a_file_of_float32(kind, folders, tmp_path):
    folder = folders(kind, 0, **WIDE[kind])
    for stored in (Q8_0, BF16):
        small = hybrids.convert(folder, tmp_path / "small.gguf", stored)
        read = {tensor.name: tensor for tensor in gguf.GGUFReader(small).tensors}
        assert stored in {tensor.tensor_type for tensor in read.values()}

        def widen(keys, tensors):
            for name, x in tensors.items():
                numbers = gguf.quants.dequantize(read[name].data, read[name].tensor_type)
                tensors[name] = torch.from_numpy(numbers.astype(np.float32)).reshape(x.shape)

        plain = hybrids.convert(folder, tmp_path / "plain.gguf", edit=widen)
        given = recurrent.logits(small, TOKENS[:40], exact=True)
        np.testing.assert_array_equal(given, recurrent.logits(plain, TOKENS[:40]))


REFUSED = [
    ("nemotron_h", 0, set_keys(feed_forward_length=integers([0, 44, 0, 0, 43])),
     "feed_forward_length': want 0 or 44, got 43"),
    ("nemotron_h", 0, set_keys(attention__head_count_kv=integers([0, 0, 0, 2])),
     "head_count_kv': want an array of 5"),
    ("nemotron_h", 0, set_keys(attention__value_length=key_of("UINT32", 11)),
     "value_length': want attention.key_length, 10"),
    ("nemotron_h", 0, set_keys(ssm__group_count=key_of("UINT32", 4)), "group_count|n_groups"),
    ("nemotron_h", 0, set_keys(ssm__foo=key_of("UINT32", 4)), "nemotron_h.ssm.foo"),
    ("nemotron_h", 0, set_keys(feed_forward_length=integers([44, 0, 0, 0, 44])), "mixer before"),
    ("nemotron_h", 0, set_tensors(lambda t: t.update({"blk.3.attn_q.bias": torch.ones(40)})),
     "blk.3.attn_q.bias"),
    ("nemotron_h", 3, set_keys(expert_count=key_of("UINT32", 5)), "want shape"),
    ("nemotron_h", 3, set_keys(expert_group_count=key_of("UINT32", 2)), "expert_group_count"),
    ("nemotron_h", 3, set_keys(moe_latent_size=key_of("UINT32", 8)), "moe_latent_size: want null"),
    ("nemotron_h", 3, set_keys(nextn_predict_layers=key_of("UINT32", 5)),
     "nextn_predict_layers': want an integer from 0 to 4"),
    ("lfm2", 0, set_keys(attention__sliding_window=key_of("UINT32", 5)), "sliding_window': want"),
    ("lfm2", 0, set_keys(attention__causal=key_of("BOOL", False)), "attention.causal"),
    ("lfm2", 0, set_keys(shortconv__l_cache=None), "shortconv.l_cache"),
    ("lfm2", 0, set_keys(shortconv__l_cache=key_of("UINT32", 4)), "shortconv.conv.*want shape"),
    ("lfm2", 0, set_keys(attention__head_count_kv=integers([0, 2, 0, 3])),
     "head_count_kv': want 0 or 2, got 3"),
    ("lfm2", 0, set_keys(attention__head_count=key_of("UINT32", 0)), "head_count': want"),
    ("lfm2", 0, set_keys(feed_forward_length=key_of("STRING", "44")), "want an integer"),
    ("lfm2_moe", 0, set_keys(expert_gating_func=key_of("UINT32", 1)), "expert_gating_func': want"),
    ("lfm2_moe", 0, set_keys(expert_gating_func=None), "expert_gating_func"),
    ("lfm2_moe", 0, set_keys(leading_dense_block_count=key_of("UINT32", 2)), "ffn_gate"),
    ("jamba", 0, set_keys(attention__head_count_kv=integers([2, 2, 0, 0, 2])),
     "head_count_kv': want layers of one period, as 1 from 0, got another layer, 2"),
    ("jamba", 0, set_keys(ssm__inner_size=key_of("UINT32", 50)), "inner_size': want a multiple"),
    ("jamba", 0, set_keys(ssm__time_step_rank=key_of("UINT32", 3)), "ssm_x.weight.*want shape|want"),
    ("jamba", 0, change_tensor("blk.0.ssm_a", lambda x: -x), "blk.0.ssm_a.*want a number up to 0"),
    ("jamba", 0, set_tensors(lambda t: t.pop("blk.3.ffn_gate_inp.weight")),
     "expert_count': want layers of one period|blk.3"),
    ("kimi_linear", 0, set_keys(attention__key_length_mla=key_of("UINT32", 6)),
     "key_length_mla': want an integer from 7"),
    ("kimi_linear", 0, set_keys(kda__head_dim=key_of("UINT32", 9)), "want"),
    ("kimi_linear", 0, set_keys(attention__kv_lora_rank=key_of("UINT32", 13)), "want shape"),
    ("kimi_linear", 0, change_tensor("blk.0.ssm_conv1d_q.weight", lambda x: x[:, 1:]),
     "ssm_conv1d_q.weight.*want the numbers of"),
    ("kimi_linear", 0, change_tensor("blk.1.attn_k_b.weight", lambda x: x.transpose(1, 2)),
     "attn_k_b.weight.*want shape"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "index", "edit", "message"), REFUSED)
def test_what_cannot_be_run_is_refused_by_name(kind, index, edit, message, folders, tmp_path):
    file = hybrids.convert(folders(kind, index), tmp_path / "model.gguf", edit=edit)
    with pytest.raises(Exception, match=message) as error:
        runtime.Model(file)
    assert "\n" not in str(error.value)


UNWRITTEN = [
    ("nemotron_h", NEMOTRON | dict(time_step_min=0.001), "time_step_min: want 0"),
    ("nemotron_h", {**NEMOTRON, **MIXED, "layers_block_type": ["linear_attention", "moe",
                    "full_attention", "mlp"]}, "layers_block_type: want moe alone"),
    ("nemotron_h", NEMOTRON | dict(layers_block_type=["full_attention", "mlp"]),
     "layers_block_type: want a block of Mamba-2"),
    ("lfm2", LFM2 | dict(conv_bias=True), "conv_bias: want false"),
    ("lfm2_moe", LFM2_MOE | dict(norm_topk_prob=False), "norm_topk_prob: want true"),
    ("lfm2_moe", LFM2_MOE | dict(routed_scaling_factor=1.7), "routed_scaling_factor: want 1"),
    ("lfm2_moe", LFM2_MOE | dict(use_expert_bias=False), "use_expert_bias: want true"),
    ("jamba", JAMBA | dict(mamba_expand=3), "mamba_expand: want 2"),
    ("kimi_linear", KIMI | dict(linear_num_heads=4), "linear_num_heads: want num_attention_heads"),
    ("kimi_linear", KIMI | dict(norm_topk_prob=False), "norm_topk_prob: want true"),
    ("kimi_linear", KIMI | dict(mlp_layer_types=["sparse", "dense", "sparse"]),
     "mlp_layer_types: want experts in all"),
    ("kimi_linear", KIMI | dict(layer_types=["full_attention"] * 3), "layer_types: want"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "keys", "message"), UNWRITTEN)
def test_what_llama_cpp_cannot_run_is_not_written(kind, keys, message, tmp_path):
    saved(kind, keys, tmp_path / "model")
    runtime.Model(tmp_path / "model")
    status, told = ways.tarn_program(
        "export", tmp_path / "model", "--out", tmp_path / "own.gguf", "--to", "gguf"
    )
    assert status == 3 and told.count("\n") == 1, told
    assert message in told
    assert not (tmp_path / "own.gguf").exists()
