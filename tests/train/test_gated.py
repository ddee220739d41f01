"""Mixers with a decaying state from the command line: they learn, resume bit for bit,
are exported, described and run by the runtime."""

import json
import pathlib
import re
import subprocess

import pytest
from conftest import PROGRAM, TINY, figures, log, products, train

TARN = pathlib.Path(PROGRAM).with_name("tarn")
KINDS = [
    "retnet", "lightning", "mamba2", "gla", "hgrn2", "deltanet", "gdn", "kda", "rwkv6", "rwkv7",
    "mamba1", "short-conv", "rg-lru", "mlstm",
]  # fmt: skip
FLAGS = [*TINY, "--schedule", "constant", "--positions", "none"]
# The one that sees a few tokens alone has a preset with softmax layers between.
PRESETS = {kind: kind for kind in KINDS if kind != "short-conv"} | {
    "hybrid": "gdn,gdn,gdn,gated-full",
    "lfm2": "short-conv,short-conv,short-conv,gated-full:output_gate=false",
}
# Every type by itself, and with the feed-forward part that carries a row too.
ALONE = [*((kind, []) for kind in KINDS), ("rwkv7", ["--feed-forward", "channel-mix"])]


def tarn(*arguments):
    done = subprocess.run([TARN, *map(str, arguments)], capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("kind, more", ALONE, ids=str)
def test_a_model_learns_resumes_and_runs(kind, more, text, tmp_path):
    straight, parts = tmp_path / "straight", tmp_path / "parts"
    flags = ["--data", text, *FLAGS, "--attention", kind, *more]
    result = train("--out", straight, *flags)
    assert result.returncode == 0, result.stderr
    lines = log(straight)
    assert lines[-1]["val_loss"] < lines[0]["loss"] - 0.5

    # Stopped between checkpoints and resumed with the same arguments.
    for more in (["--steps", 23], ["--resume"]):
        result = train("--out", parts, *flags, *more)
        assert result.returncode == 0, result.stderr
    assert products(parts)["model.safetensors"] == products(straight)["model.safetensors"]
    ours, theirs = figures(parts), figures(straight)
    assert [line["loss"] for line in ours] == [line["loss"] for line in theirs]

    # Described and run by the program that knows no torch.
    assert kind in tarn("info", straight).decode()
    assert len(tarn("generate", straight, "--prompt", "state", "--max-tokens", 12)) >= 12


@pytest.mark.parametrize(
    "layers",
    [
        "gdn,gdn,gdn,full",
        "mamba2:key_heads=1,full",
        "kda:conv_width=2,linear",
        "gla:gate_rank=3,local:local_context=8",
        "gdn,gated-full",
    ],
)
def test_hybrids_learn(layers, text, tmp_path):
    flags = ["--layers", layers, "--n-layers", "4", "--positions", "rotary"]
    result = train("--data", text, "--out", tmp_path / "run", *TINY, *flags)
    assert result.returncode == 0, result.stderr
    lines = log(tmp_path / "run")
    assert lines[-1]["val_loss"] < lines[0]["loss"] - 0.5
    assert json.loads((tmp_path / "run" / "config.json").read_text())["layers"]


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_make_models_of_a_million_parameters(preset, text, tmp_path):
    flags = ["--preset", preset, "--steps", 2, "--warmup", 1, "--sample-every", 0]
    result = train("--data", text, "--out", tmp_path / "run", *flags)
    assert result.returncode == 0, result.stderr
    words = rf"decoder of {PRESETS[preset]} attention, (\d+) parameters"
    found = re.search(words, result.stderr)
    assert found and 8e5 < int(found[1]) < 1.05e6


@pytest.mark.parametrize(
    "flags, named",
    [
        (["--attention", "gdn", "--positions", "rotary"], "positions"),
        (["--attention", "mamba2", "--arch", "encoder"], "attention"),
        (["--attention", "gdn", "--key-heads", "3"], "key_heads"),
        (["--layers", "gla:conv_width=4,full"], "conv_width"),
        (["--attention", "kda", "--conv-width", "1"], "conv_width"),
        (["--arch", "seq2seq", "--feed-forward", "channel-mix"], "feed_forward"),
    ],
)
def test_what_makes_no_model(flags, named, text, tmp_path):
    result = train("--data", text, "--out", tmp_path / "run", *TINY, *flags)
    assert result.returncode == 2 and result.stderr.count("\n") == 1
    assert named in result.stderr
