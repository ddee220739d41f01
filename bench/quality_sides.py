"""The two sides of bench/quality.py: a model quantised by tarn and by llama.cpp, and the
logits of both on windows of texts."""

import collections
import os
import pathlib
import shutil
import sys
import tempfile

import llama_process
import numpy as np
from quality_models import BUILD, ROOT, tarn
from quality_sums import WINDOW, windows

# How tarn quantises: options of `tarn quantize`; `*` stands for the calibration text.
WAYS = {
    "int8": "--weights int8",
    "int8 in groups of 32": "--weights int8 --group 32",
    "int8, calibrated": "--weights int8 --calibrate *",
    "int4": "--weights int4",
    "int4, calibrated": "--weights int4 --calibrate *",
    "int4 in groups of 64, calibrated": "--weights int4 --group 64 --calibrate *",
    "int4 with minimum, calibrated": "--weights int4 --minimum --calibrate *",
}
# Those that are also run without rounding the inputs of products, as all of llama.cpp's are.
ALSO_EXACT = ("int8", "int4", "int4, calibrated")
# How llama.cpp does: words of bench/peer_llama_files.py. `ends` is the type of the embedding
# and of the head, which the quantiser chooses if it is not named.
TYPES = {
    "F32": ("f32", ""),
    "Q8_0": ("q8_0", "own"),
    "Q4_0": ("q4_0", "own"),
    "Q4_0, ends Q8_0": ("q4_0", "q8_0"),
    "Q4_K_M": ("q4_k_m", "own"),
    "Q4_K_M, ends Q8_0": ("q4_k_m", "q8_0"),
}


def _runtime():
    os.environ.setdefault("TARN_LIBRARY", str(BUILD / "libtarn_pytorch.so"))
    sys.path.insert(0, str(ROOT / "python"))
    from tarn import runtime

    return runtime


def tarn_logits(path, texts, threads, exact=False):
    """{text: an array for each window}. exact: no rounding but that of the weights."""
    model = _runtime().Model(path, threads=threads, exact=exact)
    found = {}
    for name, text in texts.items():
        parts = (np.frombuffer(part, np.uint8).astype(np.int32) for part in windows(text))
        found[name] = [model.score(model.state(), part) for part in parts]
    return found


def _tensor_bytes(file):
    """Of a safetensors file: all that follows its header."""
    with open(file, "rb") as opened:
        header = int.from_bytes(opened.read(8), "little")
    return file.stat().st_size - 8 - header


def by_tarn(model, way, calibration, texts, threads):
    given = [str(calibration) if one == "*" else one for one in WAYS[way].split()]
    with tempfile.TemporaryDirectory() as at:
        tarn("quantize", model, "--out", at, "--overwrite", "--threads", threads, *given)
        size = _tensor_bytes(pathlib.Path(at) / "model.safetensors")
        runs = {"run": tarn_logits(at, texts, threads)}
        if way in ALSO_EXACT:
            runs["exact"] = tarn_logits(at, texts, threads, exact=True)
    return {"tensor_bytes": size}, runs


def exported(model, file):
    """The float32 GGUF file of a model, which the two sides then read."""
    partial = file.with_name(f"{file.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    tarn("export", model, "--to", "gguf", "--type", "f32", "--out", partial, "--overwrite")
    partial.rename(file)
    return file


def llama_version():
    with llama_process.Process() as server:
        return server.ask("about")["version"]


def llama_logits(file, texts, threads):
    found = {}
    with llama_process.Process() as server, tempfile.TemporaryDirectory() as at:
        out = pathlib.Path(at) / "logits.npy"
        server.ask("open", file=str(file), threads=threads or os.cpu_count())
        server.ask("start", tokens=WINDOW, kv="f32")
        for name, text in texts.items():
            found[name] = []
            for part in windows(text):
                server.ask("logits", tokens=list(part), out=str(out))
                found[name].append(np.load(out))
    return found


def _types(file):
    """{type: numbers that have it}, and the bytes of all tensors."""
    import gguf

    tensors = gguf.GGUFReader(file).tensors
    counts = collections.Counter()
    for tensor in tensors:
        counts[tensor.tensor_type.name] += int(tensor.n_elements)
    return dict(counts), sum(int(tensor.n_bytes) for tensor in tensors)


def by_llama(file, way, texts, threads):
    """run: llama.cpp's own arithmetic. exact: tarn reads the same file, its blocks widened
    to float32, so that only the weights differ from the model's."""
    kind, ends = TYPES[way]
    with tempfile.TemporaryDirectory() as at:
        path = file
        if kind != "f32":
            path = pathlib.Path(at) / "quantised.gguf"
            words = ["quantise", file, kind, path, ends]
            llama_process.program("peer_llama_files.py", *words)
        types, size = _types(path)
        runs = {
            "run": llama_logits(path, texts, threads),
            "exact": tarn_logits(path, texts, threads, exact=True),
        }
    return {"tensor_bytes": size, "types": types}, runs
