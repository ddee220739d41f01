"""What a step reads of a GGUF file, on files that gguf-py writes here."""

import numpy as np
import pytest

gguf = pytest.importorskip("gguf")
import llama_files  # noqa: E402


def written(path, tensors, **counts):
    writer = gguf.GGUFWriter(path, "qwen3next")
    for name, count in counts.items():
        writer.add_uint32(f"qwen3next.{name}", count)
    for name, shape in tensors.items():
        writer.add_tensor(name, np.ones(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_tied_embedding_is_the_head(tmp_path):
    path = written(tmp_path / "a.gguf", {"token_embd.weight": (8, 32), "blk.0.x.weight": (4, 32)})
    assert llama_files.tensor_bytes(path) == llama_files.step_bytes(path) == 4 * 12 * 32


def test_an_embedding_next_to_a_head_is_not_read(tmp_path):
    shapes = {"token_embd.weight": (8, 32), "output.weight": (8, 32)}
    path = written(tmp_path / "a.gguf", shapes)
    assert llama_files.tensor_bytes(path) == 2 * llama_files.step_bytes(path) == 8 * 8 * 32


def test_experts_count_as_often_as_they_are_chosen(tmp_path):
    shapes = {"blk.0.ffn_up_exps.weight": (8, 4, 32), "blk.0.ffn_up_shexp.weight": (4, 32)}
    path = written(tmp_path / "a.gguf", shapes, expert_count=8, expert_used_count=2)
    assert llama_files.step_bytes(path) == 4 * (2 + 1) * 4 * 32


def test_bytes_of_blocks_are_those_of_the_type(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "qwen35")
    rows = np.ones((4, 64), np.float32)
    kind = gguf.GGMLQuantizationType.Q8_0
    writer.add_tensor("blk.0.x.weight", gguf.quants.quantize(rows, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert llama_files.step_bytes(tmp_path / "a.gguf") == 4 * 2 * 34
