import gzip
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
    text = "a\u20ac b\U0001f600c\n" * 12_000
    (tmp_path / "text").write_text(text)
    done = tarn("eval", models / "char", tmp_path / "text", "--json")
    assert done.returncode == 0, done.stderr
    got = json.loads(done.stdout)
    assert got["tokens"] == len(text)
    nats = got["nats_per_token"] * (len(text) - 1)
    assert got["bits_per_byte"] == pytest.approx(
        nats / math.log(2) / (len(text.encode()) - 1), rel=1e-9
    )


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
    assert done.returncode == 3 and b"absent" in done.stderr
    assert tarn("eval", models / "linear", tmp_path).returncode == 3


def test_interrupt_gives_the_figures_so_far(tarn_program, models):
    process = subprocess.Popen(
        [tarn_program, "eval", str(models / "linear"), "-", "--json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    # A pipe holds 64 KiB: once twice as much more has been read, many were scored.
    process.stdin.write(bytes(4 * 65536))
    process.stdin.flush()
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=600)
    assert process.returncode == 130 and json.loads(out)["tokens"] > 0


def test_closed_pipe_ends_quietly(tarn_program, models):
    with open("/dev/zero", "rb") as zeros:
        process = subprocess.Popen(
            [tarn_program, "eval", str(models / "linear"), "-", "--json", "--per-token"],
            stdin=zeros,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        os.read(process.stdout.fileno(), 1)
        process.stdout.close()
        assert process.wait(timeout=600) == 0
        assert process.stderr.read() == b""
        process.stderr.close()


def test_genomes_are_read_by_their_letters(tarn, models, tmp_path):
    genome = ">one\nacgtn\nACGT\n>two\r\nGG\r\nTT\r\n"
    letters = b"ACGTNACGT\nGGTT"
    (tmp_path / "letters").write_bytes(letters)
    (tmp_path / "genome.fa").write_text(genome, newline="")
    (tmp_path / "genome.fa.gz").write_bytes(gzip.compress(genome.encode()))
    want = json.loads(tarn("eval", models / "linear", tmp_path / "letters", "--json").stdout)
    for name in ("genome.fa", "genome.fa.gz"):
        done = tarn("eval", models / "linear", tmp_path / name, "--records", "fasta", "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == want
    piped = tarn(
        "eval", models / "linear", "-", "--records", "fasta", "--json", stdin=genome.encode()
    )
    assert json.loads(piped.stdout) == want
    done = tarn(
        "eval",
        models / "linear",
        tmp_path / "genome.fa.gz",
        "--records",
        "fasta",
        "--by-position",
        "--steps",
        0,
        "--json",
    )
    assert json.loads(done.stdout)["tokens"] == len(letters)


def test_packed_texts_are_unpacked(tarn, models, tmp_path):
    (tmp_path / "text").write_bytes(TEXT)
    (tmp_path / "packed").write_bytes(gzip.compress(TEXT))
    want = tarn("eval", models / "linear", tmp_path / "text", "--json").stdout
    assert tarn("eval", models / "linear", tmp_path / "packed", "--json").stdout == want


@pytest.mark.parametrize(
    "bad, named",
    [
        (b"ACGT\n", "line 1, byte 0"),
        (b">a\nAC1\n", "line 2, byte 5"),
        (b">a\n>b\nA\n", "line 2"),
        (b">a\n", "a sequence after the last header"),
        (b"", "FASTA"),
        (gzip.compress(b">a\nACGT\n")[:-3], "bad"),
    ],
)
def test_bad_genomes_are_one_line(tarn, models, tmp_path, bad, named):
    (tmp_path / "bad").write_bytes(bad)
    done = tarn("eval", models / "linear", tmp_path / "bad", "--records", "fasta")
    assert done.returncode == 3 and done.stdout == b""
    lines = done.stderr.decode().splitlines()
    assert len(lines) == 1 and named in lines[0], lines


def test_ids_are_a_text_of_numbers(tarn, tmp_path):
    config, weights = plain_model.write_model(
        tmp_path / "m", seed=5, tokenizer="ids", vocab_size=11
    )
    tokens = np.random.default_rng(1).integers(0, 11, 50)
    (tmp_path / "text").write_text("\n".join(map(str, tokens)) + "\n")
    done = tarn("eval", tmp_path / "m", tmp_path / "text", "--per-token", "--json")
    assert done.returncode == 0, done.stderr
    got = json.loads(done.stdout)
    want = plain_model.log_probabilities(config, weights, tokens)
    np.testing.assert_allclose(got["logprobs"], want, atol=1e-4, rtol=1e-4)
    (tmp_path / "text").write_text("1 2 11")
    done = tarn("eval", tmp_path / "m", tmp_path / "text")
    assert done.returncode == 3 and b"byte 4: want a token id from 0 to 10" in done.stderr
    said = tarn("generate", tmp_path / "m", "--prompt", "1 2 3 0", "--max-tokens", 9)
    assert said.returncode == 0, said.stderr
    words = said.stdout.decode().split(" ")
    assert words[0] == "" and len(words) == 10 and all(0 <= int(w) < 11 for w in words[1:])
    assert tarn("generate", tmp_path / "m", "--prompt", "", "--max-tokens", 2).returncode == 0
    assert tarn("generate", tmp_path / "m", "--prompt", "1,2").returncode == 2
    assert tarn("tokenize", tmp_path / "m", stdin=b"3 10\n").stdout == b"3 10\n"
