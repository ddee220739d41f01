"""Recordings of spoken digits as frames, for the classifier of single frames."""

from __future__ import annotations

import io
import pathlib
import re
import tarfile
import wave
from dataclasses import dataclass

import numpy as np

from experiments.core.packing import unpacked

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_MOST_BYTES = 256 << 20
_FILE = re.compile(r"(?:.*/)?(\d)_([a-z]+)_(\d+)\.wav")
_RATE, _WINDOW, _HOP, _TRANSFORM, _BANDS = 8000, 200, 80, 256, 40


@dataclass(frozen=True)
class Recording:
    """One digit by one speaker, and its frames [T, 40]."""

    name: str
    speaker: str
    frames: np.ndarray


def recordings(path: pathlib.Path) -> list[Recording]:
    """All of an archive (.tar, plain or packed) or of a folder, sorted by their file names."""
    if path.is_dir():
        files = {one.name: one.read_bytes() for one in path.rglob("*.wav")}
    else:
        with tarfile.open(fileobj=io.BytesIO(unpacked(path, _MOST_BYTES))) as archive:
            opened = {one.name: archive.extractfile(one) for one in archive if one.isfile()}
            files = {name: one.read() for name, one in opened.items() if one is not None}
    found = []
    for name in sorted(files):
        match = _FILE.fullmatch(name)
        if match and "/._" not in name:
            found.append(Recording(NAMES[int(match[1])], match[2], log_mel(_samples(files[name]))))
    return found


def _samples(content: bytes) -> np.ndarray:
    with wave.open(io.BytesIO(content)) as sound:
        if (sound.getnchannels(), sound.getsampwidth(), sound.getframerate()) != (1, 2, _RATE):
            raise ValueError("recordings: want one channel of 16 bits at 8 kHz, got another")
        return np.frombuffer(sound.readframes(sound.getnframes()), "<i2") / 32768


def _filters() -> np.ndarray:
    """Triangles on the mel scale. [bins, bands]"""
    top = 2595 * np.log10(1 + _RATE / 2 / 700)
    edges = 700 * (10 ** (np.linspace(0, top, _BANDS + 2) / 2595) - 1)
    bins = np.arange(_TRANSFORM // 2 + 1)[:, None] * _RATE / _TRANSFORM
    low, middle, high = edges[:-2], edges[1:-1], edges[2:]
    return np.clip(
        np.minimum((bins - low) / (middle - low), (high - bins) / (high - middle)), 0, None
    )


def log_mel(samples: np.ndarray) -> np.ndarray:
    """Log energies of 40 mel bands in windows of 25 ms every 10 ms, each band with mean 0 and
    deviation 1 over the recording. samples: [N]; returns [T, 40]."""
    if samples.size < _WINDOW:
        samples = np.pad(samples, (0, _WINDOW - samples.size))
    windows = np.lib.stride_tricks.sliding_window_view(samples, _WINDOW)[::_HOP]
    power = np.abs(np.fft.rfft(windows * np.hanning(_WINDOW), _TRANSFORM)) ** 2
    bands = np.log(power @ _filters() + 1e-8)
    return (bands - bands.mean(0)) / (bands.std(0) + 1e-3)
