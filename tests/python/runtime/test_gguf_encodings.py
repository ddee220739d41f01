"""Tensors of every type that tarn reads: numbers bit-identical to those of gguf-py for random
blocks, read through a GGUF file, and the types that tarn writes bit-identical to its."""

import numpy as np
import pytest

gguf = pytest.importorskip("gguf")
torch = pytest.importorskip("torch")
safetensors_torch = pytest.importorskip("safetensors.torch")
gguf_files = pytest.importorskip("gguf_files")
tarn = pytest.importorskip("tarn")
programs = pytest.importorskip("programs")

READ = [
    "F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K",
    "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4",
]  # fmt: skip
VOCAB, WIDTH = 64, 512
KEYS = {
    "block_count": 1,
    "context_length": 64,
    "embedding_length": WIDTH,
    "feed_forward_length": 32,
    "attention.head_count": 4,
    "attention.head_count_kv": 4,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "attention.key_length": 8,
    "attention.value_length": 8,
}


def around(tensors):
    """A small model around one large tensor."""
    rng = np.random.default_rng(2)

    def numbers(*shape):
        return rng.normal(size=shape).astype(np.float32)

    return {
        "output_norm.weight": numbers(WIDTH),
        "blk.0.attn_norm.weight": numbers(WIDTH),
        "blk.0.attn_q.weight": numbers(32, WIDTH),
        "blk.0.attn_k.weight": numbers(32, WIDTH),
        "blk.0.attn_v.weight": numbers(32, WIDTH),
        "blk.0.attn_q_norm.weight": numbers(8),
        "blk.0.attn_k_norm.weight": numbers(8),
        "blk.0.attn_output.weight": numbers(WIDTH, 32),
        "blk.0.ffn_norm.weight": numbers(WIDTH),
        "blk.0.ffn_gate.weight": numbers(32, WIDTH),
        "blk.0.ffn_up.weight": numbers(32, WIDTH),
        "blk.0.ffn_down.weight": numbers(WIDTH, 32),
        **tensors,
    }


def random_blocks(kind, rng):
    block, size = gguf.GGML_QUANT_SIZES[kind]
    data = rng.integers(0, 256, (VOCAB, WIDTH // block * size), dtype=np.uint8)
    if kind == gguf.GGMLQuantizationType.MXFP4:
        # 255 stands for NaN, which gguf-py does not know.
        scales = data.reshape(-1, size)[:, 0]
        scales[scales == 255] = 254
    return data


@pytest.mark.parametrize("name", READ)
def test_every_type_gives_the_numbers_of_gguf_py(name, tmp_path):
    kind = gguf.GGMLQuantizationType[name]
    data = random_blocks(kind, np.random.default_rng(1))
    wanted = gguf.quants.dequantize(data.copy(), kind).reshape(VOCAB, WIDTH)
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "qwen3")
    gguf_files.add_keys(writer, "qwen3", KEYS)
    writer.add_tokenizer_model("none")
    for own, tensor in around({}).items():
        writer.add_tensor(own, tensor)
    writer.add_tensor("token_embd.weight", data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    given = tarn.load_model(path).state_dict()["value_embedding.weight"].numpy()
    known = ~np.isnan(wanted)
    assert known.mean() > 0.5
    assert np.array_equal(np.isnan(given), ~known)
    assert np.array_equal(given.view(np.uint32)[known], wanted.view(np.uint32)[known])


@pytest.mark.parametrize("name", ["f32", "f16", "bf16", "q8_0", "q4_0"])
def test_written_types_are_those_of_gguf_py(name, tmp_path):
    import subprocess

    kind = gguf.GGMLQuantizationType[name.upper()]
    rng = np.random.default_rng(3)
    embedding = rng.normal(size=(VOCAB, WIDTH)).astype(np.float32)
    embedding[1] = 0
    embedding[2, :32] = rng.integers(-5, 5, 32)  # equal largest magnitudes
    embedding[3] *= 1e-6
    source = gguf_files.write_file(
        tmp_path / "f32.gguf", "qwen3", KEYS, around({"token_embd.weight": embedding})
    )
    out = tmp_path / "out.gguf"
    program = [str(programs.BUILD / "tarn"), "export", str(source), "--to", "gguf"]
    done = subprocess.run(
        [*program, "--type", name, "--out", str(out)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = {tensor.name: tensor for tensor in gguf.GGUFReader(out).tensors}
    assert found["output_norm.weight"].tensor_type == gguf.GGMLQuantizationType.F32
    assert found["token_embd.weight"].tensor_type == kind
    wanted = gguf.quants.quantize(embedding, kind)
    given = np.asarray(found["token_embd.weight"].data)
    assert np.array_equal(given.view(np.uint8).reshape(-1), wanted.view(np.uint8).reshape(-1))
