"""Writes gguf_blocks.json: random blocks of each type of GGUF's tensors and the numbers that
gguf-py's reader makes of them, both as hexadecimal bytes; and numbers with the blocks that its
writer makes of them.

    .venv/bin/python tests/golden/make_gguf_blocks.py
"""

import json
import pathlib

import gguf
import numpy as np

READ = [
    "F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K",
    "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4",
]  # fmt: skip
WRITTEN = ["F32", "F16", "BF16", "Q8_0", "Q4_0"]
# Bytes of float16 scales and minima, whose exponents are set so that all numbers are finite.
HALVES = {
    "F16": range(0, 64, 2), "Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0],
    "Q5_1": [0, 2], "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2],
    "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0],
}  # fmt: skip


def blocks(name: str, rng: np.random.Generator) -> np.ndarray:
    """Two blocks, or 32 single numbers."""
    count, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    data = rng.integers(0, 256, (2, size if count > 1 else 16 * size), dtype=np.uint8)
    for at in HALVES.get(name, []):
        if at + 1 < data.shape[1]:
            data[:, at + 1] &= 0xBF
    if name in ("F32", "BF16"):
        step = {"F32": 4, "BF16": 2}[name]
        data[:, step - 1 :: step] &= 0xBF
    return data


def main() -> None:
    rng = np.random.default_rng(7)
    read, written = {}, {}
    for name in READ:
        kind = gguf.GGMLQuantizationType[name]
        data = blocks(name, rng)
        numbers = np.ascontiguousarray(gguf.quants.dequantize(data.copy(), kind), np.float32)
        assert np.isfinite(numbers).all(), name
        read[name] = {"blocks": data.tobytes().hex(), "numbers": numbers.tobytes().hex()}
    numbers = rng.normal(size=(4, 32)).astype(np.float32)
    numbers[1] = 0
    numbers[2] = rng.integers(-5, 5, 32)  # halves and equal magnitudes
    numbers[3] *= 1e-6
    for name in WRITTEN:
        data = gguf.quants.quantize(numbers, gguf.GGMLQuantizationType[name])
        written[name] = np.ascontiguousarray(data).tobytes().hex()
    out = {"read": read, "numbers": numbers.tobytes().hex(), "written": written}
    path = pathlib.Path(__file__).parent / "gguf_blocks.json"
    path.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
