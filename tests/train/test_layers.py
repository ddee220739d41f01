"""Stacks of mixed layers, other norms and feed-forward parts, from the command line."""

import json
import pathlib
import subprocess

import pytest
from conftest import PROGRAM, TINY, figures, log, products, train

HYBRID = [
    *TINY,
    "--layers",
    "linear,full",
    "--norm-kind",
    "rms",
    "--feed-forward",
    "swiglu",
    "--schedule",
    "constant",
]


def test_a_hybrid_learns_resumes_and_writes(text, tmp_path):
    straight, parts = tmp_path / "straight", tmp_path / "parts"
    result = train("--data", text, "--out", straight, *HYBRID)
    assert result.returncode == 0, result.stderr
    assert "decoder of linear,full attention" in result.stderr
    lines = log(straight)
    assert lines[-1]["val_loss"] < lines[0]["loss"] - 0.5
    config = json.loads((straight / "config.json").read_text())
    assert config["layers"] == ["linear", "full"]
    assert config["norm"]["kind"] == "rms" and config["feed_forward"]["kind"] == "swiglu"

    # Stopped between checkpoints and resumed with the same arguments.
    result = train("--data", text, "--out", parts, *HYBRID, "--steps", 23)
    assert result.returncode == 0, result.stderr
    result = train("--data", text, "--out", parts, *HYBRID, "--resume")
    assert result.returncode == 0, result.stderr
    assert products(parts)["model.safetensors"] == products(straight)["model.safetensors"]
    ours, theirs = figures(parts), figures(straight)
    assert [line["loss"] for line in ours] == [line["loss"] for line in theirs]

    program = pathlib.Path(PROGRAM).with_name("tarn")
    command = [program, "generate", straight, "--prompt", "state", "--max-tokens", "12"]
    written = subprocess.run(command, check=False, capture_output=True, timeout=120)
    assert written.returncode == 0, written.stderr
    assert len(written.stdout) >= 12


def test_a_mixture_of_experts_learns_and_generates(text, tmp_path):
    layers = "linear:feed_forward=moe,mamba2:feed_forward=none"
    keys = ["--layers", layers, "--experts", "4", "--d-expert", "16", "--d-shared", "8"]
    runs = {factor: tmp_path / factor for factor in ("0", "1")}
    for factor, out in runs.items():
        result = train("--data", text, "--out", out, *TINY, *keys, "--balance-loss", factor)
        assert result.returncode == 0, result.stderr
    lines = log(runs["1"])
    assert lines[-1]["val_loss"] < lines[0]["loss"] - 0.3
    config = json.loads((runs["1"] / "config.json").read_text())
    assert config["moe"]["experts"] == 4 and config["moe"]["d_shared"] == 8
    assert config["layers"][1] == {"mixer": "mamba2", "feed_forward": "none"}
    # The load-balancing loss acts on the weights and is no part of the loss that is told.
    weights = [products(out)["model.safetensors"] for out in runs.values()]
    assert weights[0] != weights[1]
    assert log(runs["0"])[0]["loss"] == lines[0]["loss"]

    program = pathlib.Path(PROGRAM).with_name("tarn")
    command = [program, "generate", runs["1"], "--prompt", "state", "--max-tokens", "12"]
    written = subprocess.run(command, check=False, capture_output=True, timeout=120)
    assert written.returncode == 0, written.stderr
    assert len(written.stdout) >= 12


@pytest.mark.parametrize(
    "flags, named",
    [
        (["--layers", "full,linear"], "--layers"),
        (["--attention", "linear"], "--attention"),
        (["--norm-kind", "layer"], "--norm-kind"),
        (["--feed-forward", "mlp"], "--feed-forward"),
    ],
)
def test_another_pattern_is_another_run(flags, named, text, tmp_path):
    out = tmp_path / "run"
    result = train("--data", text, "--out", out, *HYBRID, "--steps", 1)
    assert result.returncode == 0, result.stderr
    refused = train("--out", out, "--resume", *flags)
    assert refused.returncode == 2 and refused.stderr.count("\n") == 1
    assert named in refused.stderr


@pytest.mark.parametrize(
    "flags, named",
    [
        (["--layers", "linear,fast"], "--layers: want mixers"),
        (["--layers", "linear,full,linear"], "layers: want at most n_layers = 2"),
        (["--layers", "linear,full", "--attention", "full"], "--attention"),
        (["--norm-kind", "batch"], "--norm-kind"),
        (["--feed-forward", "glu"], "--feed-forward"),
        (["--layers", "linear,full", "--arch", "lstm"], "layers"),
    ],
)
def test_patterns_that_make_no_model(flags, named, text, tmp_path):
    result = train("--data", text, "--out", tmp_path / "run", *TINY, *flags)
    assert result.returncode == 2 and result.stderr.count("\n") == 1
    assert named in result.stderr
