"""--device and --precision, from the command line to the files."""

import json
import os
import pathlib
import platform
import struct
import subprocess

import pytest
from conftest import PROGRAM, TINY, figures, log, products, train

BF16 = [*TINY, "--precision", "bf16", "--schedule", "constant"]


def dtypes(path):
    """The dtypes of the tensors of a safetensors file."""
    with open(path, "rb") as stream:
        size = struct.unpack("<Q", stream.read(8))[0]
        header = json.loads(stream.read(size))
    return {entry["dtype"] for name, entry in header.items() if name != "__metadata__"}


@pytest.fixture(scope="module")
def narrow(text, tmp_path_factory):
    """A run of 60 updates in bf16."""
    out = tmp_path_factory.mktemp("narrow") / "run"
    result = train("--data", text, "--out", out, *BF16)
    assert result.returncode == 0, result.stderr
    assert "products in bf16" in result.stderr
    # /proc reports the processor independently of the trainer's own query.
    known = platform.machine() == "x86_64" and pathlib.Path("/proc/cpuinfo").exists()
    if known:
        amx = "amx_bf16" in pathlib.Path("/proc/cpuinfo").read_text()
        assert ("bf16 is slower here" in result.stderr) is not amx
    return out


@pytest.fixture(scope="module")
def wide(text, tmp_path_factory):
    """The same run in float32."""
    out = tmp_path_factory.mktemp("wide") / "run"
    result = train("--data", text, "--out", out, *TINY, "--schedule", "constant")
    assert result.returncode == 0, result.stderr
    assert "bf16" not in result.stderr
    return out


def test_losses_come_near_those_of_float32(narrow, wide):
    """Both fall by more than a nat in 60 updates; the rounding of products explains a
    difference of a hundredth of a nat, and no more."""
    apart = [abs(a["loss"] - b["loss"]) for a, b in zip(log(narrow), log(wide), strict=True)]
    assert 0 < max(apart) < 0.02
    assert log(narrow)[-1]["loss"] < log(narrow)[0]["loss"] - 1
    assert log(narrow)[-1]["val_loss"] == pytest.approx(log(wide)[-1]["val_loss"], abs=0.02)


def test_the_files_hold_float32(narrow):
    files = [
        "model.safetensors",
        "best/model.safetensors",
        "checkpoint/model.safetensors",
        "checkpoint/optimizer.safetensors",
    ]
    assert [dtypes(narrow / one) for one in files] == [{"F32"}] * len(files)
    # The weights are no bfloat16 numbers stored as float32: the low halves are in use.
    raw = (narrow / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    words = struct.unpack(f"<{(len(raw) - 8 - size) // 4}I", raw[8 + size :])
    used = sum(word & 0xFFFF != 0 for word in words)
    assert used > 0.9 * len(words)


def test_a_resumed_run_makes_the_same_bits(text, narrow, tmp_path):
    out = tmp_path / "run"
    half = [*BF16]
    half[half.index("--steps") + 1] = "30"
    assert train("--data", text, "--out", out, *half).returncode == 0
    result = train("--data", text, "--out", out, *BF16, "--resume")
    assert result.returncode == 0, result.stderr
    assert figures(out) == figures(narrow)
    for name, data in products(narrow).items():
        assert products(out)[name] == data, name


def test_another_precision_is_another_run(text, narrow):
    before = products(narrow)
    result = train(
        "--data",
        text,
        "--out",
        narrow,
        *TINY,
        "--schedule",
        "constant",
        "--precision",
        "f32",
        "--resume",
    )
    assert result.returncode == 2
    assert "--precision: want bf16 as the run began with, got f32" in result.stderr
    assert products(narrow) == before


def test_what_is_stored_says_where_and_in_what(narrow, wide):
    for folder, precision in ((narrow, "bf16"), (wide, "f32")):
        options = json.loads((folder / "checkpoint/train.json").read_text())["options"]
        assert (options["device"], options["precision"]) == ("cpu", precision)
        assert {(one["device"], one["precision"]) for one in log(folder)} == {("cpu", precision)}


@pytest.mark.skipif(
    not pathlib.Path(PROGRAM).with_name("tarn").exists(), reason="the program tarn is not built"
)
def test_info_tells_how_it_was_trained(narrow, tmp_path):
    def info(folder, *flags):
        command = [pathlib.Path(PROGRAM).with_name("tarn"), "info", folder, *flags]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    trained = json.loads(info(narrow, "--json"))["training"]
    assert trained == {"updates": 60, "device": "cpu", "precision": "bf16"}
    assert "precision" in info(narrow)
    # The model is described, whatever is in place of a checkpoint.
    assert "training" not in json.loads(info(narrow / "best", "--json"))


def has_cuda():
    import torch

    return torch.cuda.is_available()


@pytest.mark.skipif(has_cuda(), reason="a CUDA device is here")
def test_a_device_that_is_not_here_is_refused_before_any_work(text, narrow, tmp_path):
    out = tmp_path / "run"
    result = train("--data", text, "--out", out, *TINY, "--device", "cuda")
    assert result.returncode == 2 and result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert "--device: want cpu" in result.stderr and "got cuda" in result.stderr
    assert not os.path.exists(out)
    # A run does not move to that device either, nor change because this was requested.
    before = products(narrow)
    assert train("--out", narrow, "--resume", "--device", "cuda").returncode == 2
    assert products(narrow) == before


@pytest.mark.skipif(has_cuda(), reason="a CUDA device is here")
def test_a_run_that_began_elsewhere_resumes_here(text, wide, tmp_path):
    """A checkpoint that says cuda is refused as it is, and continues if the CPU is named."""
    out = tmp_path / "run"
    half = [*TINY, "--schedule", "constant"]
    half[half.index("--steps") + 1] = "30"
    assert train("--data", text, "--out", out, *half).returncode == 0
    state = out / "checkpoint/train.json"
    state.write_text(state.read_text().replace('"device": "cpu"', '"device": "cuda"'))
    more = ["--out", out, "--resume", "--steps", "60"]
    assert train(*more).returncode == 2
    result = train(*more, "--device", "cpu")
    assert result.returncode == 0, result.stderr
    assert "resumed at step 30, which cuda made" in result.stderr
    assert figures(out)[-1] == figures(wide)[-1]
