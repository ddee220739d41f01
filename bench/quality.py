"""What 8 and 4 bits cost: bits per byte of quantised models on held-out text.

    python bench/quality.py --size small|full [--only linear,gdn] [--machine NAME]

trains a byte-level model of each kind on one text, unless the folder of models has it,
quantises it in every way of WAYS and measures all of them on texts that it has not seen.
Everything that is finished is kept, so that a run may be stopped. The results are
docs/benchmarks/quality.json, whatever machine they come from: the arithmetic of tarn's
runtime is the same on all.

Texts: Tiny Shakespeare and Wikitext-2 next to the checkout (../shared/data, or
TARN_DATA), and the demonstration's, Debian's fortunes. Models: models/quality, or
TARN_QUALITY_MODELS.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import platform
import subprocess
import sys
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(os.environ.get("TARN_BUILD", str(ROOT / "build")))
DATA = pathlib.Path(os.environ.get("TARN_DATA", str(ROOT.parent / "shared" / "data")))
MODELS = pathlib.Path(os.environ.get("TARN_QUALITY_MODELS", str(ROOT / "models" / "quality")))
FORTUNES = pathlib.Path("/usr/share/games/fortunes")
RESULTS = ROOT / "docs" / "benchmarks" / "quality.json"

# Of each kind, the options of `tarn train`.
KINDS = {
    "linear": ["--attention", "linear"],
    "gdn": ["--attention", "gdn"],
    "mamba2": ["--attention", "mamba2"],
    "rwkv7": ["--attention", "rwkv7", "--feed-forward", "channel-mix"],
    "hybrid": ["--layers", "gdn,gdn,gdn,full", "--positions", "rotary"],
}
COMMON = [
    "--norm-kind", "rms", "--tokenizer", "byte", "--seed", "1", "--sample-every", "0",
    "--eval-every", "1000000", "--quiet",
]  # fmt: skip


@dataclass(frozen=True)
class Size:
    d_model: int
    layers: int
    seq_len: int
    batch: int
    steps: int
    text: int  # bytes of each held-out text


SIZES = {
    "quick": Size(64, 4, 64, 4, 20, 4000),
    "small": Size(192, 4, 128, 8, 1500, 60_000),
    "full": Size(384, 8, 256, 16, 6000, 200_000),
}
# How a model is quantised: options of `tarn quantize`; `*` stands for the calibration text.
WAYS = {
    "int8": ["--weights", "int8"],
    "int8 calibrated": ["--weights", "int8", "--calibrate", "*"],
    "int4": ["--weights", "int4"],
    "int4 calibrated": ["--weights", "int4", "--calibrate", "*"],
    "int4 with minimum": ["--weights", "int4", "--minimum"],
    "int4 with minimum, calibrated": ["--weights", "int4", "--minimum", "--calibrate", "*"],
    "int4 in groups of 64, calibrated": ["--weights", "int4", "--group", "64", "--calibrate", "*"],
}


def tarn(*arguments: object) -> str:
    done = subprocess.run(
        [str(BUILD / "tarn"), *map(str, arguments)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        sys.exit(f"tarn {' '.join(map(str, arguments))}: {done.stderr.strip()}")
    return done.stdout


def texts(size: Size) -> tuple[pathlib.Path, dict[str, pathlib.Path]]:
    """The text that models learn, and those that they have not seen, written once."""
    folder = MODELS / "texts"
    folder.mkdir(parents=True, exist_ok=True)
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
    train = folder / "train.txt"
    train.write_bytes(mixed)
    paths = {}
    for name, text in held_out.items():
        paths[name] = folder / f"{name}-{size.text}.txt"
        paths[name].write_bytes(text[: size.text])
    return train, paths


def trained(kind: str, name: str, size: Size, train: pathlib.Path) -> pathlib.Path:
    folder = MODELS / name / kind
    finished = folder / "finished"
    if not finished.exists():
        resume = ["--resume"] if (folder / "checkpoint").exists() else []
        tarn(
            "train", "--data", train, "--out", folder, "--d-model", size.d_model,
            "--n-layers", size.layers, "--n-heads", size.d_model // 32, "--seq-len", size.seq_len,
            "--batch", size.batch, "--steps", size.steps, *COMMON, *KINDS[kind], *resume,
        )  # fmt: skip
        finished.touch()
    return folder


def bits_per_byte(folder: pathlib.Path, path: pathlib.Path, *options: str) -> float:
    return json.loads(tarn("eval", folder, path, "--json", *options))["bits_per_byte"]


def measure(
    kind: str, name: str, size: Size, train: pathlib.Path, held_out: dict[str, pathlib.Path]
) -> dict:
    model = trained(kind, name, size, train)
    kept = MODELS / name / f"{kind}.json"
    result = json.loads(kept.read_text()) if kept.exists() else {}
    if not result:
        facts = json.loads(tarn("info", model, "--json"))
        result = {
            "parameters": facts["parameters"]["total"],
            "weight_bytes": {"float32": facts["weight_bytes"]},
            "bits_per_byte": {
                text: {"float32": bits_per_byte(model, path)} for text, path in held_out.items()
            },
        }
    for way, options in WAYS.items():
        if way in result["weight_bytes"]:
            continue
        out = MODELS / name / f"{kind}-quantised"
        given = [str(train) if option == "*" else option for option in options]
        tarn("quantize", model, "--out", out, "--overwrite", *given)
        for text, path in held_out.items():
            result["bits_per_byte"][text][way] = bits_per_byte(out, path)
        result["weight_bytes"][way] = json.loads(tarn("info", out, "--json"))["weight_bytes"]
        kept.write_text(json.dumps(result, indent=1))
        worst = max(v[way] - v["float32"] for v in result["bits_per_byte"].values())
        print(f"{kind}, {way}: at most {worst:+.5f} bits per byte", flush=True)
    kept.write_text(json.dumps(result, indent=1))
    return result


def commit() -> str:
    done = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True
    )
    return done.stdout.strip() or "unknown"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--only", default=",".join(KINDS), help="kinds, with commas")
    parser.add_argument("--out", default=str(RESULTS), help="file of the results")
    options = parser.parse_args()
    kinds = options.only.split(",")
    for kind in kinds:
        if kind not in KINDS:
            parser.error(f"--only: want some of {', '.join(KINDS)}, got {kind!r}")
    size = SIZES[options.size]
    train, held_out = texts(size)
    out = pathlib.Path(options.out)
    results = json.loads(out.read_text()) if out.exists() else {"sizes": {}}
    for kind in kinds:
        models = results["sizes"].setdefault(options.size, {"models": {}})
        models |= {
            "machine": platform.machine(),
            "commit": commit(),
            "training": {key: getattr(size, key) for key in ("steps", "seq_len", "batch")},
        }
        models["models"][kind] = measure(kind, options.size, size, train, held_out)
        out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
