"""Writes log_mel.safetensors: what librosa 0.11.0 computes for the log-mel
features of src/train/objectives/log_mel.h, read by log_mel_test.cc. Run with a Python that
has librosa, numpy and safetensors:

    python tests/golden/make_log_mel.py [folder]

The sound is made here: a chirp, a click, noise and silence, 0.4 s at 8 kHz.
librosa's window is in the middle of its transform, so the sound is padded by the
difference; its frames then begin where those of tarn do.
"""

import pathlib
import sys

import librosa
import numpy as np
from safetensors.numpy import save_file

RATE, WINDOW, HOP, TRANSFORM, BANDS = 8000, 200, 80, 256, 40


def sound() -> np.ndarray:
    """[3217] float32 in [-1, 1]."""
    time = np.arange(3217) / RATE
    values = 0.4 * np.sin(2 * np.pi * (200 + 2500 * time) * time)
    values += 0.01 * np.random.default_rng(7).standard_normal(len(time))
    values[1500] = 0.9
    values[2400:] = 0
    return values.astype(np.float32)


def main() -> None:
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    samples = sound()
    filters = librosa.filters.mel(
        sr=RATE,
        n_fft=TRANSFORM,
        n_mels=BANDS,
        fmin=0,
        fmax=RATE / 2,
        htk=True,
        norm=None,
        dtype=np.float64,
    )
    side = (TRANSFORM - WINDOW) // 2
    power = librosa.feature.melspectrogram(
        y=np.pad(samples, side).astype(np.float64),
        sr=RATE,
        n_fft=TRANSFORM,
        hop_length=HOP,
        win_length=WINDOW,
        window="hann",
        center=False,
        power=2.0,
        n_mels=BANDS,
        fmin=0,
        fmax=RATE / 2,
        htk=True,
        norm=None,
        dtype=np.float64,
    )
    tensors = {
        "samples": samples,
        "filters": filters.astype(np.float32),
        "log_mel": np.ascontiguousarray(np.log(power.T + 1e-6), np.float32),
    }
    save_file(tensors, folder / "log_mel.safetensors", {"librosa": librosa.__version__})


if __name__ == "__main__":
    main()
