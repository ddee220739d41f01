"""GGUF files of the models of bench/published_shapes.py, each written once, next to its
directory: float32 and bfloat16 by llama.cpp's converter, the others by its quantiser.

    python bench/llama_files.py NAME f32|bf16|q8_0|q4_0|q4_k_m [--quick]    prints the file's path
"""

import sys

import llama_process as llama
import models
import published_shapes as shapes

CONVERTED = ("f32", "bf16")


def file(name, kind, quick=False):
    """The file of a model in one type, made if it is not there."""
    prefix = "quick-" if quick else ""
    path = models.folder() / f"{prefix}{name}-{kind}.gguf"
    if path.is_file():
        return path
    partial = path.with_name(f"{path.name}.partial")
    if kind in CONVERTED:
        folder = shapes.folder(name, quick)
        llama.program("peer_llama_files.py", "convert", folder, kind, partial)
    else:
        source = file(name, "bf16" if shapes.is_bfloat16(name) else "f32", quick)
        llama.program("peer_llama_files.py", "quantise", source, kind, partial)
    partial.rename(path)
    return path


def tensor_bytes(path):
    """Bytes of all tensors of a file."""
    import gguf

    return sum(int(tensor.n_bytes) for tensor in gguf.GGUFReader(path).tensors)


def step_bytes(path):
    """Bytes of weights that a step of one token reads: of an embedding next to a head one
    row, which is not counted, and of experts those that a token chooses."""
    import gguf

    reader = gguf.GGUFReader(path)
    names = {tensor.name for tensor in reader.tensors}

    def key(suffix):
        found = [field for name, field in reader.fields.items() if name.endswith(suffix)]
        return int(found[0].contents()) if found else 0

    used, experts = key(".expert_used_count"), key(".expert_count")
    total = 0.0
    for tensor in reader.tensors:
        if tensor.name == "token_embd.weight" and "output.weight" in names:
            continue
        share = used / experts if "_exps." in tensor.name else 1.0
        total += share * int(tensor.n_bytes)
    return total


if __name__ == "__main__":
    print(file(sys.argv[1], sys.argv[2], "--quick" in sys.argv))
