"""The training split and the held-out items of `tarn train`, computed again: what it holds
out follows from a hash of the content (src/data/text/records.cc, src/train/tasks/image_data.cc)."""

from __future__ import annotations

import numpy as np

_ONE_IN = 20
_BLOCK, _LEAST_BLOCK = 2048, 64
_SHIFT32, _SHIFT33 = np.uint64(32), np.uint64(33)
_M1, _M2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_GOLDEN = 0x9E3779B97F4A7C15


def mix(x: np.ndarray) -> np.ndarray:
    """The finaliser of MurmurHash3 of each word, as src/core/hash.h has it."""
    x = (x ^ (x >> _SHIFT33)) * _M1
    x = (x ^ (x >> _SHIFT33)) * _M2
    return x ^ (x >> _SHIFT33)


def hash_bytes(rows: np.ndarray) -> np.ndarray:
    """HashBytes of src/core/hash.h of each row. rows: uint8 [N, B]; returns uint64 [N]."""
    count, size = rows.shape
    padded = np.zeros((count, size + -size % 8), np.uint8)
    padded[:, :size] = rows
    words = padded.view("<u8")
    value = mix(np.full(count, (size + _GOLDEN) % (1 << 64), np.uint64))
    for i in range(size // 8):
        value = (value ^ words[:, i]) * np.uint64(_GOLDEN)
        value ^= value >> _SHIFT32
    tail = words[:, -1] if size % 8 else np.uint64(0)
    return mix(value ^ tail)


def blocks(text: bytes) -> list[bytes]:
    """The records that a text of one file is cut into: blocks of some 2 KiB that end at line
    ends. ValueError where the text has lines of "%", which cut it otherwise."""
    if text.startswith(b"%\n") or b"\n%\n" in text:
        raise ValueError("blocks: text: want no line that holds % alone, got one")
    target = min(max(len(text) // 64, _LEAST_BLOCK), _BLOCK)
    found, begin = [], 0
    while begin < len(text):
        length = _block_length(text, begin, target)
        found.append(text[begin : begin + length])
        begin += length
    return found


def _block_length(text: bytes, begin: int, target: int) -> int:
    left = len(text) - begin
    if left <= target + target // 2:
        return left
    ahead = text.find(b"\n", begin + target - 1, min(begin + 2 * target, len(text)))
    if ahead >= 0:
        return ahead + 1 - begin
    before = text.rfind(b"\n", begin, begin + target)
    if before - begin >= target // 2:
        return before + 1 - begin
    end = target
    for _ in range(3):  # never within a character
        end -= (text[begin + end] & 0xC0) == 0x80
    return end


def split_text(text: bytes) -> tuple[bytes, bytes]:
    """What is learned and what is held out, each in the order of the text: duplicates are
    dropped, and one record in twenty is held out."""
    records: dict[bytes, bytes] = {}
    for record in blocks(text):
        key = record.rstrip(b"\r\n")
        if key:
            records.setdefault(key, record)
    learned, held = [], []
    for key, record in records.items():
        value = hash_bytes(np.frombuffer(key, np.uint8)[None])
        is_held = mix(value ^ np.uint64(0x5EED))[0] % np.uint64(_ONE_IN) == 0
        (held if is_held else learned).append(record)
    return b"".join(learned), b"".join(held)


def windows(held: np.ndarray, seq_len: int, most: int) -> np.ndarray:
    """The held-out rows that a trainer evaluates: every seq_len tokens a row of seq_len + 1,
    evenly thinned to `most`. held: tokens [N]; returns [most, seq_len + 1] at most. A last,
    shorter row must be thinned out."""
    starts = range(0, held.size - 1, seq_len)
    if len(starts) > most:
        starts = [starts[i * len(starts) // most] for i in range(most)]
    if starts[-1] + seq_len >= held.size:
        raise ValueError(f"windows: held: want whole rows of {seq_len + 1}, got a shorter one")
    return np.stack([held[one : one + seq_len + 1] for one in starts])


def pooled(images: np.ndarray, size: int) -> np.ndarray:
    """Rounded means of size x size pixels. images: uint8 [N, H, W, C]."""
    count, height, width, channels = images.shape
    tiles = images.reshape(count, height // size, size, width // size, size, channels)
    sums = tiles.sum((2, 4), dtype=np.int64)
    return ((sums + size * size // 2) // (size * size)).astype(np.uint8)


def learned_images(images: np.ndarray) -> np.ndarray:
    """Without the one image in twenty that the trainer holds out. images: uint8 [N, H, W, C],
    pooled."""
    ranks = mix(hash_bytes(images.reshape(images.shape[0], -1)))
    return images[ranks % np.uint64(_ONE_IN) != 0]
