"""GGUF files of recurrent models and hybrids, made by the converter's rules from random models
of the classes that define them: logits of the runtime are those of the classes, and of the
published directory; exported again, files and directories give the same; what cannot be run
is refused by name."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
safetensors_torch = pytest.importorskip("safetensors.torch")
gguf = pytest.importorskip("gguf")
runtime = pytest.importorskip("tarn.runtime", exc_type=ImportError)
published = pytest.importorskip("published")
ways = pytest.importorskip("published_ways")
recurrent = pytest.importorskip("gguf_recurrent")
gguf_files = pytest.importorskip("gguf_files")

Q8_0, F16, BF16 = (gguf.GGMLQuantizationType[name] for name in ("Q8_0", "F16", "BF16"))
WORDS = dict(vocab_size=97, pad_token_id=None, bos_token_id=None, eos_token_id=None)
MAMBA = dict(WORDS, hidden_size=24, num_hidden_layers=3, state_size=7)
MAMBA2 = dict(WORDS, hidden_size=24, num_hidden_layers=3, num_heads=6, head_dim=8, state_size=9)
HYBRID = dict(
    WORDS,
    hidden_size=24,
    intermediate_size=44,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    mamba_n_heads=6,
    mamba_d_head=8,
    mamba_d_state=10,
)
FALCON = dict(HYBRID, head_dim=10, mamba_d_ssm=48, mamba_norm_before_gate=False)
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
GRANITE = dict(
    HYBRID,
    num_hidden_layers=4,
    intermediate_size=20,
    shared_intermediate_size=44,
    layer_types=["mamba", "attention", "mamba", "mamba"],
    num_local_experts=0,
    num_experts_per_tok=0,
    attention_multiplier=0.3,
    embedding_multiplier=2.5,
)
QWEN = dict(
    WORDS,
    hidden_size=36,
    intermediate_size=52,
    num_hidden_layers=4,
    num_attention_heads=6,
    num_key_value_heads=2,
    head_dim=16,
    linear_num_key_heads=2,
    linear_num_value_heads=6,
    linear_key_head_dim=10,
    linear_value_head_dim=10,
)
EXPERTS = dict(
    num_experts=5,
    num_experts_per_tok=2,
    moe_intermediate_size=20,
    shared_expert_intermediate_size=28,
)
ROPE = dict(rope_type="default", rope_theta=300.0, partial_rotary_factor=0.5)
LLAMA3 = dict(rope_type="llama3", rope_theta=300.0, factor=8.0, low_freq_factor=1.0,
              high_freq_factor=4.0, original_max_position_embeddings=64)  # fmt: skip
MROPE = {**ROPE, "mrope_section": [2, 1, 1], "mrope_interleaved": True}
# Type, options, and whether llama.cpp runs them, so that they can be written.
CASES = [
    ("mamba", MAMBA, True),
    ("mamba", {**MAMBA, "time_step_rank": 5, "conv_kernel": 3, "tie_word_embeddings": False}, True),
    ("mamba", {**MAMBA, "hidden_size": 40, "use_bias": True, "use_conv_bias": False}, False),
    ("falcon_mamba", {**MAMBA, "mixer_rms_eps": 1e-5}, True),
    ("falcon_mamba", {**MAMBA, "mixer_rms_eps": 0.3, "layer_norm_epsilon": 0.3,
                      "tie_word_embeddings": False}, True),
    ("mamba2", {**MAMBA2, "n_groups": 3}, True),
    ("mamba2", {**MAMBA2, "n_groups": 1, "conv_kernel": 2, "tie_word_embeddings": True,
                "layer_norm_epsilon": 1e-3}, True),
    ("mamba2", {**MAMBA2, "n_groups": 6, "expand": 4, "head_dim": 16, "use_bias": True,
                "use_conv_bias": False}, False),
    ("falcon_h1", {**FALCON, **FACTORS}, True),
    ("falcon_h1", {**FALCON, **FACTORS, "mamba_rms_norm": True, "mamba_n_groups": 2,
                   "attention_in_multiplier": 1.0, "attention_bias": True, "mlp_bias": True,
                   "num_key_value_heads": 1,
                   "rope_parameters": dict(rope_type="default", rope_theta=1e11)}, True),
    ("falcon_h1", {**FALCON, "embedding_multiplier": 1.5, "lm_head_multiplier": 1.5,
                   "tie_word_embeddings": True, "mamba_n_groups": 3, "mamba_d_conv": 3}, True),
    ("granitemoehybrid", GRANITE, True),
    ("granitemoehybrid",
     {**GRANITE, "position_embedding_type": "rope", "num_local_experts": 5,
      "num_experts_per_tok": 2, "mamba_n_groups": 2, "tie_word_embeddings": True,
      "attention_bias": True, "logits_scaling": 3.0, "residual_multiplier": 0.4}, True),
    ("granitemoehybrid",
     {**GRANITE, "layer_types": ["attention", "mamba", "attention"], "num_hidden_layers": 3,
      "num_key_value_heads": 4, "mamba_conv_bias": False, "num_local_experts": 3,
      "num_experts_per_tok": 3, "rms_norm_eps": 1e-3}, True),
    ("qwen3_5_text", QWEN, True),
    ("qwen3_5_text",
     {**QWEN, "tie_word_embeddings": True, "rope_parameters": MROPE, "num_key_value_heads": 6,
      "linear_num_key_heads": 6, "linear_conv_kernel_dim": 3}, True),
    ("qwen3_5_text",
     {**QWEN, "attention_bias": True, "full_attention_interval": 2, "linear_value_head_dim": 14,
      "linear_num_key_heads": 3}, False),
    ("qwen3_5_moe_text", {**QWEN, **EXPERTS}, True),
    ("qwen3_5_moe_text",
     {**QWEN, **EXPERTS, "tie_word_embeddings": True, "num_experts_per_tok": 5,
      "linear_num_key_heads": 1}, True),
    ("qwen3_5_moe_text",
     {**QWEN, **EXPERTS, "rope_parameters": MROPE, "attention_bias": True,
      "linear_num_key_heads": 3}, False),
    ("qwen3_next", {**QWEN, **EXPERTS}, True),
    ("qwen3_next",
     {**QWEN, **EXPERTS, "num_hidden_layers": 3, "linear_num_key_heads": 1,
      "layer_types": ["full_attention", "linear_attention", "linear_attention"],
      "partial_rotary_factor": 1.0, "num_experts_per_tok": 3}, True),
    ("qwen3_next",
     {**QWEN, **EXPERTS, "tie_word_embeddings": True, "rope_parameters": ROPE,
      "linear_conv_kernel_dim": 3, "linear_num_key_heads": 6, "linear_value_head_dim": 14}, False),
]  # fmt: skip
RWKV = dict(
    architectures=["RWKV7ForCausalLM"],
    model_type="rwkv7",
    vocab_size=97,
    hidden_size=48,
    num_hidden_layers=3,
    intermediate_size=50,
    head_dim=12,
    norm_eps=64e-5 / 12,
    fuse_norm=False,
    decay_low_rank_dim=7,
    gate_low_rank_dim=9,
    a_low_rank_dim=5,
    v_low_rank_dim=3,
)
RWKV_CASES = [
    RWKV,
    {**RWKV, "tie_word_embeddings": True, "hidden_size": 32, "head_dim": 16, "norm_eps": 4e-5},
    {**RWKV, "fuse_norm": True, "num_hidden_layers": 1, "hidden_size": 64, "head_dim": 64,
     "norm_eps": 1e-5},
]  # fmt: skip


def names_of(cases):
    seen = [case[0] for case in cases]
    return [f"{kind}-{seen[:index].count(kind)}" for index, kind in enumerate(seen)]


NAMES = names_of(CASES)
TOKENS = np.random.default_rng(1).integers(0, published.VOCAB, 200)


def logits(path, tokens=TOKENS, exact=False):
    opened = runtime.Model(path, exact=exact)
    return opened.score(opened.state(), tokens)


def assert_opens(path, wanted):
    """At once, in pieces and by steps, within the bounds of directories."""
    opened = runtime.Model(path)
    published.assert_close(opened.score(opened.state(), TOKENS), wanted)
    state = opened.state()
    pieces = [opened.score(state, piece) for piece in np.split(TOKENS, [1, 7, 100])]
    published.assert_close(np.concatenate(pieces), wanted)
    state = opened.state()
    published.assert_close(np.stack([opened.step(state, int(t)) for t in TOKENS]), wanted)


def exported(source, out, *options):
    status, told = ways.tarn_program("export", source, "--out", out, *options)
    assert status == 0, told
    return out


def assert_file_as_converted(path, folder):
    """A file of tarn's has the names, shapes and, within roundings, numbers of the converter's.
    llama.cpp asks for a head of RWKV-7 and for biases of convolutions where the model has none,
    and for numbers of RWKV-7's first layer that nothing reads."""
    c = json.loads((folder / "config.json").read_text())
    wanted = recurrent.tensors_of(c, safetensors_torch.load_file(folder / "model.safetensors"))
    given = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    for name in set(given) - set(wanted):
        assert name == "output.weight" or name.endswith("ssm_conv1d.bias"), name
        assert name == "output.weight" or not given[name].data.any(), name
    for name, x in wanted.items():
        tensor = given[name]
        assert tensor.shape.tolist() == list(x.shape)[::-1], name
        if c["model_type"] == "rwkv7" and name.startswith("blk.0.time_mix_v"):
            continue  # those of the first layer: no layer is before it
        own = torch.from_numpy(np.array(tensor.data)).reshape(x.shape)
        torch.testing.assert_close(own, x, rtol=3e-6, atol=1e-7, msg=name)


@pytest.mark.parametrize(("kind", "keys", "runs"), CASES, ids=NAMES)
def test_a_converted_model(kind, keys, runs, tmp_path):
    model = published.random_model(kind, keys)
    model.save_pretrained(tmp_path / "model")
    wanted = published.definer_logits(model, TOKENS)
    file = recurrent.convert(tmp_path / "model", tmp_path / "model.gguf")
    assert_opens(file, wanted)
    published.assert_close(logits(tmp_path / "model"), logits(file))
    if not runs:
        status, told = ways.tarn_program(
            "export", tmp_path / "model", "--out", tmp_path / "own.gguf", "--to", "gguf"
        )
        assert status == 3 and "as llama.cpp runs it" in told and told.count("\n") == 1, told
        assert not (tmp_path / "own.gguf").exists()
        return
    own = exported(tmp_path / "model", tmp_path / "own.gguf", "--to", "gguf", "--type", "f32")
    assert_file_as_converted(own, tmp_path / "model")
    published.assert_close(logits(own), wanted)
    back = exported(file, tmp_path / "back", "--to", "hf")
    published.assert_close(logits(back), wanted)


@pytest.mark.parametrize("index", range(len(RWKV_CASES)))
def test_a_converted_rwkv7(index, tmp_path):
    keys = RWKV_CASES[index]
    folder = recurrent.rwkv_folder(tmp_path / "model", keys, index)
    # A file does not say whether keys have an eps under the root of their squared length.
    plain = recurrent.rwkv_folder(tmp_path / "plain", keys | {"fuse_norm": False}, index)
    file = recurrent.convert(folder, tmp_path / "model.gguf")
    wanted = logits(plain)
    assert_opens(file, wanted)
    own = exported(folder, tmp_path / "own.gguf", "--to", "gguf", "--type", "f32")
    assert_file_as_converted(own, folder)
    published.assert_close(logits(own), wanted)
    back = exported(file, tmp_path / "back", "--to", "hf")
    published.assert_close(logits(back), wanted)


@pytest.mark.skipif(gguf_files.LLAMA_CPP is None, reason="TARN_LLAMA_CPP names no checkout")
@pytest.mark.parametrize("name", [*NAMES, *(f"rwkv7-{i}" for i in range(len(RWKV_CASES)))])
def test_the_rules_are_those_of_the_converter(name, tmp_path):
    kind, _, index = name.rpartition("-")
    folder = tmp_path / "model"
    if kind == "rwkv7":
        recurrent.rwkv_folder(folder, RWKV_CASES[int(index)])
    else:
        published.random_model(kind, options(kind, int(index))).save_pretrained(folder)
    path = folder / "config.json"
    c = json.loads(path.read_text())
    if kind == "granitemoehybrid":  # the words of published files
        words = {"linear_attention": "mamba", "full_attention": "attention"}
        c["layer_types"] = [words.get(word, word) for word in c["layer_types"]]
        path.write_text(json.dumps(c))
    theirs = gguf_files.convert(folder, tmp_path / "theirs.gguf")
    ours = recurrent.convert(folder, tmp_path / "ours.gguf")
    given, wanted = gguf_files.read_keys(ours), gguf_files.read_keys(theirs)
    architecture = wanted["general.architecture"] + "."
    kept = {key for key in given.keys() | wanted.keys() if key.startswith(architecture)}
    if c.get("position_embedding_type") == "rope":  # the converter gives no hybrid positions
        kept.remove(architecture + "rope.scaling.finetuned")
    assert {key: given.get(key) for key in kept} == {key: wanted.get(key) for key in kept}
    own = {tensor.name: tensor for tensor in gguf.GGUFReader(ours).tensors}
    for tensor in gguf.GGUFReader(theirs).tensors:
        assert own[tensor.name].shape.tolist() == tensor.shape.tolist(), tensor.name
        np.testing.assert_array_equal(own.pop(tensor.name).data, tensor.data, tensor.name)
    assert not own


def options(kind, index=0):
    return [keys for name, keys, _ in CASES if name == kind][index]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Small models by type and options, written once."""
    made = {}

    def folder(kind, index=0, **keys):
        name = f"{kind}-{index}-{len(keys)}"
        if name not in made:
            at = tmp_path_factory.mktemp(name) / "model"
            if kind == "rwkv7":
                recurrent.rwkv_folder(at, RWKV)
            else:
                published.random_model(kind, options(kind, index) | keys).save_pretrained(at)
            made[name] = at
        return made[name]

    return folder


def key_of(kind, value):
    return gguf.gguf_writer.GGUFValue(value, gguf.GGUFValueType[kind])


def integers(values):
    return gguf.gguf_writer.GGUFValue(values, gguf.GGUFValueType.ARRAY)


def set_keys(**changes):
    """Sets keys of the architecture; a dot is written as two underscores, None removes."""

    def edit(keys, tensors):
        arch = keys["general.architecture"].value
        for name, value in changes.items():
            whole = f"{arch}.{name.replace('__', '.')}"
            keys.pop(whole, None)
            if value is not None:
                keys[whole] = value

    return edit


def set_tensors(change):
    return lambda keys, tensors: change(tensors)


def change_tensor(name, change):
    def edit(keys, tensors):
        tensors[name] = change(tensors[name]).contiguous()

    return edit


# What other converters write, and files that llama-quantize wrote again: logits are the same.
def fuse_experts(keys, tensors):
    for name in [name for name in tensors if name.endswith("ffn_gate_exps.weight")]:
        both = [tensors.pop(name), tensors.pop(name.replace("gate", "up"))]
        tensors[name.replace("gate_exps", "gate_up_exps")] = torch.cat(both, 1)


def drop_leading_ones(keys, tensors):
    for name, x in tensors.items():
        while x.shape[0] == 1 and x.dim() > 1:
            x = x[0]
        tensors[name] = x


ALIKE = [
    ("qwen3_5_moe_text", 0, fuse_experts),
    ("qwen3_5_moe_text", 0, drop_leading_ones),
    ("qwen3_5_text", 0, set_keys(attention__recurrent_layers=None)),
    ("qwen3_5_text", 0, set_keys(full_attention_interval=None, rope__dimension_sections=None)),
    ("mamba2", 1, drop_leading_ones),
    ("granitemoehybrid", 0, set_keys(expert_count=None, expert_used_count=None)),
    ("rwkv7", 0, set_keys(token_shift_count=key_of("UINT32", 2))),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "index", "edit"), ALIKE)
def test_files_that_say_the_same_otherwise(kind, index, edit, folders, tmp_path):
    folder = folders(kind, index)
    file = recurrent.convert(folder, tmp_path / "model.gguf", edit=edit)
    published.assert_close(logits(file), logits(folder))


def test_early_files_of_qwen3_next_hold_the_published_matrix(folders, tmp_path):
    folder = folders("qwen3_next")
    weights = safetensors_torch.load_file(folder / "model.safetensors")

    def edit(keys, tensors):
        for name in [name for name in tensors if name.endswith("attn_qkv.weight")]:
            layer = name.split(".")[1]
            del tensors[name], tensors[name.replace("qkv", "gate")]
            rows = weights[f"model.layers.{layer}.linear_attn.in_proj_qkvz.weight"]
            tensors[f"blk.{layer}.ssm_in.weight"] = rows

    file = recurrent.convert(folder, tmp_path / "model.gguf", edit=edit)
    published.assert_close(logits(file), logits(folder))


@pytest.mark.parametrize("kind", ["qwen3_5_text", "qwen3_5_moe_text", "qwen3_next"])
def test_layers_for_later_tokens_are_left_out(kind, folders, tmp_path):
    file = recurrent.convert(folders(kind), tmp_path / "model.gguf", later_layers=2)
    published.assert_close(logits(file), logits(folders(kind)))


def test_absent_scales_of_granite_are_ones(folders, tmp_path):
    keys = dict(attention_multiplier=6**-0.5, embedding_multiplier=1.0)
    folder = folders("granitemoehybrid", 0, **keys)
    names = ("attention.scale", "embedding_scale", "residual_scale", "logit_scale")
    edit = set_keys(**{name.replace(".", "__"): None for name in names})
    file = recurrent.convert(folder, tmp_path / "model.gguf", edit=edit)
    published.assert_close(logits(file), logits(folder))


# Heads of values as wide as a block, and more of them than heads of keys: blocks of rows and
# of columns change their order as they are.
WIDE = dict(
    hidden_size=64,
    intermediate_size=96,
    linear_num_key_heads=2,
    linear_num_value_heads=4,
    linear_key_head_dim=32,
    linear_value_head_dim=32,
    head_dim=32,
)
WIDE_EXPERTS = dict(moe_intermediate_size=32, shared_expert_intermediate_size=64)
STORED = [("qwen3_5_text", kind) for kind in (F16, BF16, Q8_0)] + [
    (kind, Q8_0) for kind in ("qwen3_5_moe_text", "qwen3_next", "mamba2", "falcon_h1")
]


@pytest.mark.parametrize(("kind", "stored"), STORED)
def test_stored_numbers_are_those_of_a_file_of_float32(kind, stored, folders, tmp_path):
    wide = WIDE if kind.startswith("qwen") else dict(hidden_size=64)
    if kind in ("qwen3_5_moe_text", "qwen3_next"):
        wide |= WIDE_EXPERTS
    if kind == "mamba2":
        wide |= dict(num_heads=4, head_dim=32, n_groups=2)
    if kind == "falcon_h1":
        wide |= dict(mamba_n_heads=4, mamba_d_head=32, mamba_d_ssm=128, head_dim=16)
    folder = folders(kind, 0, **wide)
    small = recurrent.convert(folder, tmp_path / "small.gguf", stored)
    read = {tensor.name: tensor for tensor in gguf.GGUFReader(small).tensors}
    assert stored in {tensor.tensor_type for tensor in read.values()}

    def widen(keys, tensors):
        for name, x in tensors.items():
            numbers = gguf.quants.dequantize(read[name].data, read[name].tensor_type)
            tensors[name] = torch.from_numpy(numbers.astype(np.float32)).reshape(x.shape)

    plain = recurrent.convert(folder, tmp_path / "plain.gguf", edit=widen)
    given = logits(small, TOKENS[:40], exact=True)
    np.testing.assert_array_equal(given, logits(plain, TOKENS[:40]))


REFUSED = [
    ("mamba", set_keys(ssm__state_size=None), "'mamba.ssm.state_size': want"),
    ("mamba", set_keys(ssm__foo=key_of("UINT32", 1)), "mamba.ssm.foo"),
    ("mamba", set_keys(ssm__state_size=key_of("STRING", "7")), "ssm.state_size': want an integer"),
    ("mamba", set_keys(ssm__time_step_rank=key_of("UINT32", 3)), "ssm_x.weight.*want shape"),
    ("mamba", set_keys(block_count=key_of("UINT32", 4)), "blk.3.attn_norm.weight"),
    ("mamba", set_keys(block_count=key_of("UINT32", 2)), "blk.2.*want a name that the"),
    ("mamba", set_keys(block_count=key_of("UINT32", 0)), "block_count': want an integer from 1"),
    ("mamba", change_tensor("blk.0.ssm_a", lambda x: -x), "blk.0.ssm_a.*want a number up to 0"),
    ("mamba", change_tensor("blk.1.ssm_conv1d.weight", lambda x: x[:, 1:]),
     "blk.1.ssm_conv1d.weight.*want shape"),
    ("mamba", set_tensors(lambda t: t.update(foo=torch.ones(3))), "foo"),
    ("mamba", set_tensors(lambda t: t.pop("blk.2.ssm_d")), "blk.2.ssm_d"),
    ("mamba2", set_keys(ssm__inner_size=key_of("UINT32", 50)), "ssm.inner_size': want a multiple"),
    ("mamba2", set_keys(ssm__group_count=key_of("UINT32", 4)), "group_count|n_groups"),
    ("mamba2", set_keys(ssm__conv_kernel=key_of("UINT32", 9)), "conv_kernel"),
    ("falcon_h1", set_keys(attention__value_length=key_of("UINT32", 12)),
     "value_length': want attention.key_length, 10"),
    ("falcon_h1", set_keys(rope__dimension_count=key_of("UINT32", 6)),
     "dimension_count': want the 10 channels of a head"),
    ("falcon_h1", set_keys(rope__scaling__type=key_of("STRING", "longrope")),
     "rope.scaling.type': want"),
    ("falcon_h1", set_keys(attention__scale=key_of("FLOAT32", 0.5)), "falcon-h1.attention.scale"),
    ("falcon_h1", set_tensors(lambda t: t.update({"rope_freqs.weight": torch.ones(5)})),
     "rope_freqs.weight"),
    ("granitemoehybrid", set_keys(attention__head_count_kv=integers([0, 2, 1, 0])),
     "head_count_kv': want 0 or, as other layers have, 2"),
    ("granitemoehybrid", set_keys(attention__head_count_kv=integers([0, 2, 0])),
     "head_count_kv': want"),
    ("granitemoehybrid", set_keys(expert_weights_scale=key_of("FLOAT32", 2.0)),
     "expert_weights_scale"),
    ("qwen3_5_text", set_keys(rope__dimension_sections=integers([0, 0, 0, 2])),
     "dimension_sections': want an axis"),
    ("qwen3_5_text", set_keys(attention__recurrent_layers=integers([True, False])),
     "recurrent_layers': want 4 flags"),
    ("qwen3_5_text", set_keys(nextn_predict_layers=key_of("UINT32", 4)),
     "nextn_predict_layers': want an integer from 0 to 3"),
    ("qwen3_5_text", set_keys(attention__sliding_window=key_of("UINT32", 5)),
     "attention.sliding_window"),
    ("qwen3_5_text", set_keys(ssm__time_step_rank=key_of("UINT32", 5)), "ssm|linear_num"),
    ("qwen3_5_moe_text", set_keys(expert_count=key_of("UINT32", 4)), "want shape"),
    ("qwen3_5_moe_text", set_keys(expert_used_count=key_of("UINT32", 6)),
     "expert_used_count': want an integer from 1 to 5"),
    ("qwen3_next", set_keys(expert_gating_func=key_of("UINT32", 2)), "expert_gating_func"),
    ("rwkv7", set_keys(attention__layer_norm_epsilon=key_of("FLOAT32", 1e-5)),
     "layer_norm_epsilon': want 0.00064 / wkv.head_size"),
    ("rwkv7", set_keys(attention__gate_lora_rank=None), "gate_lora_rank': want"),
    ("rwkv7", set_keys(token_shift_count=key_of("UINT32", 1)), "token_shift_count': want"),
    ("rwkv7", change_tensor("blk.0.time_mix_lerp_fused.weight", lambda x: x[:5]),
     "time_mix_lerp_fused.weight.*want shape"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "edit", "message"), REFUSED)
def test_what_cannot_be_run_is_refused_by_name(kind, edit, message, folders, tmp_path):
    file = recurrent.convert(folders(kind), tmp_path / "model.gguf", edit=edit)
    with pytest.raises(Exception, match=message) as error:
        runtime.Model(file)
    assert "\n" not in str(error.value)


def test_refusals_are_one_line_and_exit_code_3(folders, tmp_path):
    edit = set_keys(attention__sliding_window=key_of("UINT32", 5))
    file = recurrent.convert(folders("qwen3_5_text"), tmp_path / "model.gguf", edit=edit)
    status, told = ways.tarn_program("info", file)
    assert status == 3 and told.count("\n") == 1 and "sliding_window" in told


UNWRITTEN = [
    ("mamba", dict(expand=3), "expand: want 2, as llama.cpp runs it"),
    ("falcon_mamba", dict(mixer_rms_eps=1e-6), "mixer_rms_eps: want layer_norm_epsilon"),
    ("mamba2", dict(n_groups=3, time_step_limit=(0.0, 0.02)), "time_step_limit: want"),
    ("falcon_h1", dict(mamba_rms_norm=True, mamba_norm_before_gate=True),
     "mamba_norm_before_gate: want false"),
    ("falcon_h1", dict(tie_word_embeddings=True, embedding_multiplier=2.0),
     "lm_head_multiplier: want embedding_multiplier"),
    ("falcon_h1", dict(rope_parameters=LLAMA3), "rotary_scaling: want none, linear or yarn"),
    ("granitemoehybrid", dict(mamba_expand=4, mamba_n_heads=12), "mamba_expand: want 2"),
    ("qwen3_5_text", dict(linear_value_head_dim=14), "linear_value_head_dim: want"),
    ("qwen3_next", dict(mlp_only_layers=[1]), "mlp_only_layers: want"),
    ("qwen3_next", dict(norm_topk_prob=False), "norm_topk_prob: want true"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "keys", "message"), UNWRITTEN)
def test_what_llama_cpp_cannot_run_is_not_written(kind, keys, message, tmp_path):
    published.random_model(kind, options(kind) | keys).save_pretrained(tmp_path / "model")
    runtime.Model(tmp_path / "model")
    status, told = ways.tarn_program(
        "export", tmp_path / "model", "--out", tmp_path / "own.gguf", "--to", "gguf"
    )
    assert status == 3 and told.count("\n") == 1
    assert message in told
    assert not (tmp_path / "own.gguf").exists()


@pytest.mark.parametrize(
    ("keys", "message"),
    [(dict(norm_eps=1e-5), "norm_eps: want 0.00064 / head_dim"),
     (dict(norm_first=False), "norm_first: want true")],
)  # fmt: skip
def test_what_llama_cpp_cannot_run_of_rwkv7(keys, message, tmp_path):
    folder = recurrent.rwkv_folder(tmp_path / "model", {**RWKV, **keys})
    if not keys.get("norm_first", True):
        weights = safetensors_torch.load_file(folder / "model.safetensors")
        kept = {name: x for name, x in weights.items() if "pre_norm" not in name}
        safetensors_torch.save_file(kept, folder / "model.safetensors", {"format": "pt"})
    runtime.Model(folder)
    status, told = ways.tarn_program(
        "export", folder, "--out", tmp_path / "own.gguf", "--to", "gguf"
    )
    assert status == 3 and message in told
