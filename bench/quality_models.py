"""The models of bench/quality.py, trained by `tarn train`, and the texts that they learn and
are measured on: Tiny Shakespeare and Wikitext-2 next to the checkout (../shared/data, or
TARN_DATA), and the demonstration's, Debian's fortunes."""

import os
import pathlib
import subprocess
import sys
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(os.environ.get("TARN_BUILD", str(ROOT / "build")))
DATA = pathlib.Path(os.environ.get("TARN_DATA", str(ROOT.parent / "shared" / "data")))
FOLDER = pathlib.Path(os.environ.get("TARN_QUALITY_MODELS", str(ROOT / "models" / "quality")))
FORTUNES = pathlib.Path("/usr/share/games/fortunes")


@dataclass(frozen=True)
class Size:
    d_model: int  # a multiple of 256, the width of a block of llama.cpp's K types
    layers: int
    seq_len: int
    batch: int
    steps: int
    text: int  # bytes of each held-out text


SIZES = {
    "quick": Size(256, 4, 64, 4, 20, 4 * 1024),
    "small": Size(256, 4, 128, 8, 1200, 24 * 1024),
    "full": Size(512, 8, 256, 16, 6000, 192 * 1024),
}


def _unit(size):
    words = f"--norm-kind rms --feed-forward swiglu --d-ff {3 * size.d_model}"
    return [*words.split(), *_layers(size)]


def _layers(size):
    return f"--n-layers {size.layers} --n-heads {size.d_model // 64}".split()


def _linear(size):
    """With local layers of 8 tokens, as the preset of that name."""
    return ["--layers", "local:local_context=8,linear", "--positions", "rotary", *_unit(size)]


def _gdn(size):
    return ["--attention", "gdn", "--positions", "none", *_unit(size)]


def _mamba2(size):
    """Without feed-forward parts, and so with more layers."""
    words = f"""--attention mamba2 --positions none --norm-kind rms --feed-forward none
        --n-layers {size.layers * 3 // 2} --n-heads {size.d_model // 32} --key-heads 1
        --d-key 64 --d-value 64"""
    return words.split()


def _rwkv7(size):
    words = """--attention rwkv7 --positions none --feed-forward channel-mix --input-norm true
        --value-residual true"""
    return [*words.split(), *_layers(size)]


def _hybrid(size):
    """The layers of Qwen3.5."""
    words = """--layers gdn,gdn,gdn,full --positions rotary --norm-offset 1 --head-gate true
        --head-norm head --qkv-bias false --out-bias false"""
    return [*words.split(), *_unit(size)]


KINDS = {
    "linear": _linear,
    "gdn": _gdn,
    "mamba2": _mamba2,
    "rwkv7": _rwkv7,
    "hybrid": _hybrid,
}
FEWER_STEPS = {"linear": 7 / 12}  # of a size's: it learns faster than it runs
FOR_LLAMA = ("mamba2", "rwkv7", "hybrid")  # in a form that llama.cpp runs
# Each 8th update is one long row, as long as the windows of the measurement where batch x
# seq_len is.
COMMON = """--tokenizer byte --seed 1 --head-bias false --long-every 8 --lr 0.002 --warmup 100
    --sample-every 0 --eval-every 1000000 --eval-windows 64 --quiet""".split()


def tarn(*arguments):
    """What the program prints; ends this one where it fails."""
    words = [str(BUILD / "tarn"), *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"tarn {' '.join(words[1:])}: {done.stderr.strip()}")
    return done.stdout


def texts(size):
    """The text that models learn, and {name: bytes} of those that they have not seen."""
    shakespeare = (DATA / "text-shakespeare" / "input.txt").read_bytes()
    wikitext = DATA / "text-wikitext2"
    learned = [
        (wikitext / "wiki.valid.txt").read_bytes(),
        shakespeare[: len(shakespeare) * 9 // 10],
    ]
    held_out = {
        "shakespeare": shakespeare[len(shakespeare) * 9 // 10 :],
        "wikitext-2": (wikitext / "wiki.test.txt").read_bytes(),
    }
    if FORTUNES.is_dir():
        files = [p for p in sorted(FORTUNES.iterdir()) if p.suffix not in (".dat", ".u8")]
        fortunes = b"".join(p.read_bytes() for p in files if p.is_file())
        learned.append(fortunes[: len(fortunes) * 9 // 10])
        held_out["fortunes"] = fortunes[len(fortunes) * 9 // 10 :]
    # Calibration reads the beginning of a text: some of each, by turns.
    piece = 4096
    most = max(len(text) for text in learned)
    mixed = b"".join(text[at : at + piece] for at in range(0, most, piece) for text in learned)
    FOLDER.mkdir(parents=True, exist_ok=True)
    train = FOLDER / "train.txt"
    train.write_bytes(mixed)
    return train, {name: text[: size.text] for name, text in held_out.items()}


def steps(kind, size):
    """Updates of a model."""
    return round(size.steps * FEWER_STEPS.get(kind, 1))


def trained(kind, name, size, train, threads):
    """The directory of a model, trained unless it is there."""
    folder = FOLDER / name / kind
    finished = folder / "finished"
    if not finished.exists():
        resume = ["--resume"] if (folder / "checkpoint").exists() else []
        tarn(
            "train", "--data", train, "--out", folder, "--d-model", size.d_model,
            "--seq-len", size.seq_len, "--batch", size.batch, "--steps", steps(kind, size),
            "--threads", threads, *COMMON, *KINDS[kind](size), *resume,
        )  # fmt: skip
        finished.touch()
    return folder
