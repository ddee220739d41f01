"""Training, its files and its errors, from the command line."""

import json
import math
import os
import pathlib
import resource
import subprocess

import pytest
from conftest import PROGRAM, TINY, fortunes, log, start, train


def test_log_has_every_figure(straight):
    lines = log(straight)
    assert [line["step"] for line in lines] == list(range(1, 61))
    always = {
        "step",
        "loss",
        "bits_per_byte",
        "lr",
        "grad_norm",
        "tokens",
        "tokens_per_s",
        "elapsed_s",
        "cpu_s",
        "device",
        "precision",
    }
    looked = {"val_loss", "val_bits_per_byte"}
    for line in lines:
        want = always | looked if line["step"] % 15 == 0 else always
        assert set(line) == want
        # Bytes are tokens here: only the unit differs, nats or bits.
        bits = line["loss"] / math.log(2)
        assert line["bits_per_byte"] == pytest.approx(bits, rel=1e-6)
    assert lines[-1]["tokens"] == 60 * 2 * 2 * 16
    seconds = [line["cpu_s"] for line in lines]
    assert seconds == sorted(seconds) and seconds[0] > 0
    assert lines[-1]["loss"] < lines[0]["loss"] - 1
    assert lines[-1]["val_loss"] < lines[0]["loss"] - 1


def test_output_is_a_model_directory(straight):
    for folder in (straight, straight / "best"):
        config = json.loads((folder / "config.json").read_text())
        # There is a position for every token of a long row: batch 2 x seq_len 16.
        assert config["model"]["d_model"] == 16
        assert config["positions"]["max_positions"] == 32
        tokenizer = json.loads((folder / "tokenizer.json").read_text())
        assert tokenizer["type"] == "byte"
        assert (folder / "model.safetensors").stat().st_size > 10000
    assert not [n for n in os.listdir(straight) if "tmp" in n or "old" in n]


def test_prints_time_and_held_out_bits(text, tmp_path):
    flags = [*TINY, "--steps", "3", "--sample-every", "3"]
    result = train("--data", text, "--out", tmp_path / "a", *flags)
    assert result.returncode == 0
    assert "training time" in result.stdout
    last = log(tmp_path / "a")[-1]["val_bits_per_byte"]
    assert f"held out {last:.4f} bits per byte" in result.stdout
    assert "sample:" in result.stderr and "held out" in result.stderr
    quiet = train("--data", text, "--out", tmp_path / "b", *flags, "--quiet")
    assert quiet.stderr == "" and "bits per byte" in quiet.stdout


def test_same_seed_same_bits_other_seed_other_bits(text, straight, tmp_path):
    same, other = tmp_path / "same", tmp_path / "other"
    assert train("--data", text, "--out", same, *TINY).returncode == 0
    assert train("--data", text, "--out", other, *TINY, "--seed", 1).returncode == 0
    weights = "model.safetensors"
    assert (same / weights).read_bytes() == (straight / weights).read_bytes()
    assert (other / weights).read_bytes() != (straight / weights).read_bytes()


def test_standard_input_is_a_text_like_any(text, straight, tmp_path):
    out = tmp_path / "run"
    piped = text.read_bytes()
    result = train("--data", "-", "--out", out, *TINY, input=piped)
    assert result.returncode == 0, result.stderr
    weights = "model.safetensors"
    assert (out / weights).read_bytes() == (straight / weights).read_bytes()
    again = train("--out", out, "--resume", input=piped)
    assert again.returncode == 0, again.stderr


def test_several_files_of_characters(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_text(fortunes(100, 2))
    b.write_text(fortunes(100, 3).replace("state", "\u03c6(k)"))
    out = tmp_path / "run"
    flags = [*TINY, "--tokenizer", "char", "--steps", "20"]
    result = train("--data", a, b, "--out", out, *flags)
    assert result.returncode == 0, result.stderr
    points = set(map(ord, a.read_text() + b.read_text()))
    tokenizer = json.loads((out / "tokenizer.json").read_text())
    assert tokenizer["code_points"] == sorted(points)
    config = json.loads((out / "config.json").read_text())
    assert config["model"]["vocab_size"] == len(points)
    # phi has two bytes: a byte costs less than a character.
    assert any(line["bits_per_byte"] < 0.9999 * line["loss"] / math.log(2) for line in log(out))


def tarn(*arguments, **options):
    program = pathlib.Path(PROGRAM).with_name("tarn")
    result = subprocess.run(
        [program, *map(str, arguments)], check=False, capture_output=True, timeout=600, **options
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_a_bpe_model_from_text_to_text(text, tmp_path):
    """Train a tokenizer, a model on it, resume, evaluate, generate."""
    bpe = tmp_path / "bpe.json"
    tarn("tokenize", "--train", text, "--vocab", 300, "--out", bpe)
    flags = [*TINY, "--tokenizer", "bpe", "--tokenizer-file", bpe, "--schedule", "constant"]
    straight, parts = tmp_path / "straight", tmp_path / "parts"
    result = train("--data", text, "--out", straight, *flags)
    assert result.returncode == 0, result.stderr
    lines = log(straight)
    assert lines[-1]["val_bits_per_byte"] < lines[0]["bits_per_byte"] - 0.5
    model = json.loads((straight / "config.json").read_text())["model"]
    assert (model["tokenizer"], model["vocab_size"]) == ("bpe", 300)
    assert (straight / "tokenizer.json").read_bytes() == bpe.read_bytes()

    result = train("--data", text, "--out", parts, *flags, "--steps", "21")
    assert result.returncode == 0, result.stderr
    result = train("--out", parts, "--resume", "--steps", "60")
    assert result.returncode == 0, result.stderr
    weights = "model.safetensors"
    assert (parts / weights).read_bytes() == (straight / weights).read_bytes()

    # The runtime counts the same bytes: bits per byte of a file it has seen.
    sample = text.read_bytes()[:400].rsplit(b"\n", 1)[0]
    figures = json.loads(tarn("eval", straight, "-", "--json", input=sample))
    ids = tarn("tokenize", straight, "--whole", input=sample).split()
    assert figures["tokens"] == len(ids)
    first = tarn("tokenize", straight, "--decode", "--whole", input=ids[0])
    bits = figures["nats_per_token"] * (len(ids) - 1) / math.log(2)
    assert figures["bits_per_byte"] == pytest.approx(bits / (len(sample) - len(first)), rel=1e-9)
    assert len(ids) < len(sample) / 1.5
    written = tarn("generate", straight, "--prompt", "state", "--max-tokens", 12)
    assert written


@pytest.mark.parametrize(
    "flags",
    [
        ["--attention", "full", "--attention-dropout", "0.1"],
        ["--optimizer", "radam", "--lr", "0.01", "--schedule", "step", "--decay-at", "40"],
        ["--positions", "rotary", "--norm", "post"],
        ["--positions", "sinusoidal", "--position-combine", "concat"],
        ["--tied-head", "true", "--records", "block", "--clip", "0"],
    ],
)
def test_other_models_and_optimisers_learn(flags, text, tmp_path):
    result = train("--data", text, "--out", tmp_path / "run", *TINY, *flags)
    assert result.returncode == 0, result.stderr
    lines = log(tmp_path / "run")
    assert lines[-1]["val_loss"] < lines[0]["loss"] - 0.5


def test_init_starts_from_the_weights(text, straight, tmp_path):
    other = tmp_path / "other"
    other.write_text(fortunes(200, 9))
    out = tmp_path / "run"
    flags = ["--batch", 2, "--seq-len", 16, "--steps", 20, "--sample-every", 0]
    result = train("--init", straight, "--data", other, "--out", out, *flags)
    assert result.returncode == 0, result.stderr
    assert log(out)[0]["loss"] < log(straight)[0]["loss"] - 1
    assert (out / "config.json").read_bytes() == (straight / "config.json").read_bytes()
    refused = train(
        "--init",
        straight,
        "--data",
        other,
        "--out",
        tmp_path / "x",
        "--d-model",
        32,
    )
    assert refused.returncode == 2 and "--init" in refused.stderr


def test_a_loss_that_is_no_number_stops(text, tmp_path):
    out = tmp_path / "run"
    flags = [*TINY, "--lr", "1e30", "--warmup", "0", "--clip", "0"]
    result = train("--data", text, "--out", out, *flags)
    assert result.returncode == 1
    message = result.stderr.splitlines()[-1]
    step = len(log(out)) + 1
    assert message.startswith(f"tarn train: error: step {step}:")
    saved = json.loads((out / "checkpoint/train.json").read_text())["step"]
    assert f"{out}/checkpoint (step {saved})" in message


ERRORS = {
    "missing text": (3, ["--data", "{tmp}/none"], "none"),
    "empty text": (3, ["--data", "{tmp}/empty"], "empty"),
    "a folder": (3, ["--data", "{tmp}"], "directory"),
    "one record": (3, ["--data", "{tmp}/short"], "record"),
    "not UTF-8": (3, ["--data", "{tmp}/binary", "--tokenizer", "char"], "binary"),
    "no data": (2, [], "--data"),
    "heads": (2, ["--data", "{text}", "--d-model", "30", "--n-heads", "4"], "n_heads"),
    "no number": (2, ["--data", "{text}", "--lr", "fast"], "--lr"),
    "unknown flag": (2, ["--data", "{text}", "--step", "3"], "--steps"),
    "no value": (2, ["--data", "{text}", "--steps"], "--steps"),
    "too large": (2, ["--data", "{text}", "--batch", "1000000"], "GiB"),
    "no model": (3, ["--data", "{text}", "--init", "{tmp}"], "config.json"),
    "bpe of no file": (2, ["--data", "{text}", "--tokenizer", "bpe"], "--tokenizer-file"),
    "bytes of a file": (2, ["--data", "{text}", "--tokenizer-file", "{text}"], "--tokenizer"),
    "no tokenizer there": (
        3,
        ["--data", "{text}", "--tokenizer", "bpe", "--tokenizer-file", "{tmp}/none"],
        "none",
    ),
    "no tokenizer in it": (
        3,
        ["--data", "{text}", "--tokenizer", "world", "--tokenizer-file", "{text}"],
        "line 1",
    ),
    "no preset": (2, ["--data", "{text}", "--preset", "big"], "demo"),
    "out is a file": (1, ["--data", "{text}", "--out", "{tmp}/empty"], "empty"),
    "out cannot be": (1, ["--data", "{text}", "--out", "/dev/full/x"], "/dev/full"),
    "out cannot be made": (1, ["--data", "{text}", "--out", "/proc/x"], "/proc/x"),
    "a run is there": (2, ["--data", "{text}", "--out", "{run}"], "--overwrite"),
    "nothing to resume": (2, ["--resume"], "--data"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_come_before_work_in_one_line(case, text, straight, tmp_path):
    code, flags, named = ERRORS[case]
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "short").write_text("one line\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe" * 5000)
    flags = [f.format(tmp=tmp_path, text=text, run=straight) for f in flags]
    if "--out" not in flags:
        flags += ["--out", str(tmp_path / "out")]
    result = train(*flags)
    assert result.returncode == code, result.stderr
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1 and named in result.stderr
    assert result.stderr.startswith("tarn train: error: ")
    assert not (tmp_path / "out" / "model.safetensors").exists()


def test_binary_data_is_fine(tmp_path):
    data = tmp_path / "noise"
    data.write_bytes(os.urandom(20000))
    flags = [*TINY, "--steps", "3"]
    result = train("--data", data, "--out", tmp_path / "run", *flags)
    assert result.returncode == 0, result.stderr


def test_no_space_is_said_and_leaves_the_last_checkpoint(text, tmp_path):
    out = tmp_path / "run"
    # The log outgrows the limit near step 600; weights and optimiser do not.
    flags = [*TINY, "--n-layers", "1", "--steps", "2000", "--eval-every", "2000"]
    limit = 110_000
    result = train(
        "--data",
        text,
        "--out",
        out,
        *flags,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert result.returncode == 1
    assert "log.jsonl" in result.stderr.splitlines()[-1]
    saved = json.loads((out / "checkpoint/train.json").read_text())["step"]
    assert 0 < saved <= len((out / "log.jsonl").read_text().splitlines())
    # A checkpoint that does not fit at all.
    small = train(
        "--data",
        text,
        "--out",
        tmp_path / "small",
        *TINY,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
    )
    assert small.returncode == 1 and "model.safetensors" in small.stderr
    assert not (tmp_path / "small" / "checkpoint").exists()


def test_two_runs_cannot_share_a_folder(text, tmp_path):
    out = tmp_path / "run"
    flags = ["--data", text, "--out", out, *TINY, "--steps", "1000000"]
    first = start(*flags)
    while not (out / "log.jsonl").exists() and first.poll() is None:
        pass
    second = train(*flags, "--overwrite")
    first.kill()
    first.communicate()
    assert second.returncode == 1 and "another run" in second.stderr


def test_overwrite_starts_again(text, straight, tmp_path):
    out = tmp_path / "run"
    flags = ["--data", text, "--out", out]
    assert train(*flags, *TINY, "--seed", "3", "--steps", "9").returncode == 0
    result = train(*flags, *TINY, "--overwrite")
    assert result.returncode == 0, result.stderr
    weights = "model.safetensors"
    assert (out / weights).read_bytes() == (straight / weights).read_bytes()
    assert len(log(out)) == 60


def test_help_names_flags_and_examples():
    result = train("--help")
    assert result.returncode == 0 and result.stderr == ""
    for part in ("--d-model", "--accumulate", "--resume", "Examples", "130"):
        assert part in result.stdout


@pytest.mark.parametrize("flags", [["--help"], ["--data", "{text}", "--out", "{out}"]])
def test_output_that_cannot_be_written_is_a_failure(flags, text, tmp_path):
    """The model is saved all the same; `tarn` says it in the same words."""
    words = [word.format(text=text, out=tmp_path / "run") for word in flags]
    size = [] if words == ["--help"] else [*TINY, "--steps", "2"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [PROGRAM, *words, *size], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 1
    assert done.stderr.decode().endswith(
        "tarn train: error: standard output: want a file that can be written, "
        "got no space left on device\n"
    )
    assert "--data" not in flags or (tmp_path / "run" / "model.safetensors").is_file()


def test_another_simd_target_by_environment(text, tmp_path):
    """`tarn-train` takes it like `tarn`; a missing one is refused before any work."""
    words = ["--data", text, *TINY, "--steps", "1"]
    forced = {**os.environ, "TARN_FORCE_TARGET": "sse4"}
    result = train(*words, "--out", tmp_path / "a", env=forced)
    assert result.returncode == 0 and ", SSE4\n" in result.stderr
    forced["TARN_FORCE_TARGET"] = "vax"
    result = train(*words, "--out", tmp_path / "b", env=forced)
    assert result.returncode == 2 and "vax" in result.stderr and not (tmp_path / "b").exists()
