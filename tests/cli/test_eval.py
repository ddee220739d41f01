import json
import math
import os
import signal
import subprocess

import numpy as np
import plain_model
import pytest

TEXT = b"It was the best of times, it was the worst of times.\n" * 4


@pytest.mark.parametrize("attention", ["linear", "full"])
def test_figures_are_those_of_the_plain_model(tarn, tmp_path, attention):
    config, weights = plain_model.write_model(tmp_path / "m", seed=5, attention=attention)
    (tmp_path / "text").write_bytes(TEXT)
    done = tarn("eval", tmp_path / "m", tmp_path / "text", "--per-token", "--json")
    assert done.returncode == 0, done.stderr
    got = json.loads(done.stdout)
    want = plain_model.log_probabilities(config, weights, np.frombuffer(TEXT, np.uint8))
    assert got["tokens"] == len(TEXT) and len(got["logprobs"]) == len(TEXT) - 1
    # float32 against float64 through two layers of unscaled random weights.
    np.testing.assert_allclose(got["logprobs"], want, atol=1e-4, rtol=1e-4)
    nats = -np.mean(got["logprobs"])
    assert got["nats_per_token"] == pytest.approx(nats, rel=1e-12)
    assert got["perplexity"] == pytest.approx(math.exp(nats), rel=1e-9)
    assert got["bits_per_byte"] == pytest.approx(nats / math.log(2), rel=1e-12)


def test_plain_output_has_the_same_figures(tarn, models, tmp_path):
    (tmp_path / "text").write_bytes(TEXT)
    got = json.loads(tarn("eval", models / "linear", tmp_path / "text", "--json").stdout)
    assert list(got) == ["tokens", "nats_per_token", "perplexity", "bits_per_byte"]
    lines = tarn("eval", models / "linear", tmp_path / "text").stdout.decode().splitlines()
    assert {k: float(v) for k, v in (line.split() for line in lines)} == got
    per_token = tarn("eval", models / "linear", tmp_path / "text", "--per-token").stdout
    assert len(per_token.splitlines()) == len(TEXT) - 1 + 4


def test_threads_and_standard_input_change_nothing(tarn, models, tmp_path):
    text = bytes(np.random.default_rng(0).integers(0, 256, 150_000, dtype=np.uint8))
    (tmp_path / "text").write_bytes(text)
    one = tarn("eval", models / "linear", tmp_path / "text", "--json", "--threads", 1).stdout
    two = tarn("eval", models / "linear", "-", "--json", "--threads", 2, stdin=text).stdout
    assert json.loads(one)["tokens"] == 150_000
    assert one == two


def test_bits_per_byte_counts_bytes_of_characters(tarn, models, tmp_path):
    # Characters of 1 to 4 bytes, cut by the 65,536-byte pieces of the reader.
    text = "a\u20ac b\U0001F600c\n" * 12_000
    (tmp_path / "text").write_text(text)
    done = tarn("eval", models / "char", tmp_path / "text", "--json")
    assert done.returncode == 0, done.stderr
    got = json.loads(done.stdout)
    assert got["tokens"] == len(text)
    nats = got["nats_per_token"] * (len(text) - 1)
    assert got["bits_per_byte"] == pytest.approx(
        nats / math.log(2) / (len(text.encode()) - 1), rel=1e-9)


def test_bad_text_is_named_with_its_byte(tarn, models, tmp_path):
    (tmp_path / "text").write_bytes(b"a" * 70_000 + b"\xff")
    done = tarn("eval", models / "char", tmp_path / "text")
    assert done.returncode == 3 and done.stdout == b""
    assert b"byte 70000" in done.stderr and done.stderr.count(b"\n") == 1
    (tmp_path / "text").write_bytes(b"ab\xe2\x82")  # ends inside a character
    assert b"byte 2" in tarn("eval", models / "char", tmp_path / "text").stderr


def test_too_short_and_missing_files(tarn, models, tmp_path):
    (tmp_path / "one").write_bytes(b"x")
    done = tarn("eval", models / "linear", tmp_path / "one", "--json")
    assert done.returncode == 3 and done.stdout == b"" and b"at least 2" in done.stderr
    done = tarn("eval", models / "linear", tmp_path / "absent")
    assert done.returncode == 1 and b"absent" in done.stderr
    assert tarn("eval", models / "linear", tmp_path).returncode == 1


def test_interrupt_gives_the_figures_so_far(tarn_program, models):
    with open("/dev/zero", "rb") as zeros:
        process = subprocess.Popen([tarn_program, "eval", str(models / "linear"), "-", "--json"],
                                   stdin=zeros, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=2)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 130 and json.loads(out)["tokens"] > 0


def test_closed_pipe_ends_quietly(tarn_program, models):
    with open("/dev/zero", "rb") as zeros:
        process = subprocess.Popen(
            [tarn_program, "eval", str(models / "linear"), "-", "--json", "--per-token"],
            stdin=zeros, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        os.read(process.stdout.fileno(), 1)
        process.stdout.close()
        assert process.wait(timeout=120) == 0
        assert process.stderr.read() == b""
        process.stderr.close()
