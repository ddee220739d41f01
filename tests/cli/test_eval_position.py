"""`tarn eval --by-position`: bits, time and memory along one stream."""

import json
import math
import signal
import subprocess

import numpy as np
import plain_model
import pytest

TEXT = bytes(np.random.default_rng(3).integers(32, 127, 5_000, dtype=np.uint8))


def _positions(tarn, model, path, *flags):
    done = tarn("eval", model, path, "--by-position", "--json", "--near", 100, *flags)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("attention", ["linear", "full"])
def test_buckets_hold_the_log_probabilities_of_their_positions(tarn, tmp_path, attention):
    config, weights = plain_model.write_model(tmp_path / "m", seed=5, attention=attention)
    text = TEXT[:600]
    (tmp_path / "text").write_bytes(text)
    got = _positions(tarn, tmp_path / "m", tmp_path / "text", "--steps", 0)
    bits = -plain_model.log_probabilities(config, weights, np.frombuffer(text, np.uint8))
    bits = bits / math.log(2)  # entry i is of position i + 1
    assert got["tokens"] == 600 and got["steps"] is None
    assert got["bits_per_token"] == pytest.approx(bits.mean(), rel=1e-4)
    borders = [(b["begin"], b["end"]) for b in got["buckets"]]
    assert borders == [
        (1, 2),
        (2, 5),
        (5, 10),
        (10, 20),
        (20, 50),
        (50, 100),
        (100, 200),
        (200, 500),
        (500, 600),
    ]
    for bucket in got["buckets"]:
        part = bits[bucket["begin"] - 1 : bucket["end"] - 1]
        assert bucket["tokens"] == len(part)
        assert bucket["bits_per_token"] == pytest.approx(part.mean(), rel=1e-3)
        error = part.std(ddof=1) / math.sqrt(len(part)) if len(part) > 1 else 0
        assert bucket["standard_error"] == pytest.approx(error, rel=1e-2, abs=1e-3)


def test_steps_and_memory_at_both_ends(tarn, models, tmp_path):
    (tmp_path / "text").write_bytes(TEXT)
    got = _positions(tarn, models / "linear", tmp_path / "text", "--steps", 400)
    near, far = got["memory"]["near"], got["memory"]["far"]
    assert (near["position"], far["position"]) == (100, 5_000)
    assert near["state_bytes"] == far["state_bytes"] > 0
    assert near["resident_bytes"] > 0 and far["resident_bytes"] > 0
    steps = got["steps"]
    assert steps["count"] == 400
    # One unmeasured block of 50 comes first, then the measured steps.
    assert (steps["near"]["begin"], steps["near"]["end"]) == (150, 550)
    assert (steps["far"]["begin"], steps["far"]["end"]) == (5_050, 5_450)
    ratio = steps["far"]["median_us"] / steps["near"]["median_us"]
    assert steps["ratio"] == pytest.approx(ratio) and ratio > 0


def test_a_cache_grows_where_a_state_does_not(tarn, models, tmp_path):
    (tmp_path / "text").write_bytes(TEXT)
    got = _positions(tarn, models / "full", tmp_path / "text", "--steps", 0)["memory"]
    assert got["far"]["state_bytes"] > 10 * got["near"]["state_bytes"]


def test_figures_are_those_without_positions(tarn, models, tmp_path):
    (tmp_path / "text").write_bytes(TEXT)
    for limit in (0, 2_000, 4_999, 5_000, 9_000):
        flags = ("--max-tokens", limit)
        plain = json.loads(
            tarn("eval", models / "linear", tmp_path / "text", "--json", *flags).stdout
        )
        got = _positions(tarn, models / "linear", tmp_path / "text", "--steps", 0, *flags)
        assert got["tokens"] == plain["tokens"] == min(limit or 5_000, 5_000)
        assert got["bits_per_byte"] == pytest.approx(plain["bits_per_byte"], rel=1e-12)
        assert sum(b["tokens"] for b in got["buckets"]) == got["tokens"] - 1


def test_cut_text_counts_the_bytes_of_its_characters(tarn, models, tmp_path):
    (tmp_path / "cut").write_text("a\u20ac b\U0001f600c\n")
    (tmp_path / "long").write_text("a\u20ac b\U0001f600c\n" * 20_000)
    want = json.loads(tarn("eval", models / "char", tmp_path / "cut", "--json").stdout)
    flags = ("--max-tokens", 7)
    for more in ((), ("--by-position",)):
        got = json.loads(
            tarn("eval", models / "char", tmp_path / "long", "--json", *flags, *more).stdout
        )
        assert got["bits_per_byte"] == pytest.approx(want["bits_per_byte"], rel=1e-12)


def test_the_table_says_the_same(tarn, models, tmp_path):
    (tmp_path / "text").write_bytes(TEXT)
    flags = ("--by-position", "--near", 100, "--steps", 0, "--threads", 1)
    lines = tarn("eval", models / "linear", tmp_path / "text", *flags).stdout.decode().split("\n")
    got = _positions(tarn, models / "linear", tmp_path / "text", "--steps", 0)
    assert lines[0] == "tokens 5000"
    assert float(lines[1].split()[1]) == got["bits_per_token"]
    rows = [line.split() for line in lines[6 : 6 + len(got["buckets"])]]
    for row, bucket in zip(rows, got["buckets"], strict=True):
        assert [int(x) for x in row[:3]] == [bucket["begin"], bucket["end"] - 1, bucket["tokens"]]
        assert float(row[3]) == pytest.approx(bucket["bits_per_token"], abs=1e-4)


def test_a_short_stream_has_no_steps(tarn, models, tmp_path):
    (tmp_path / "text").write_bytes(TEXT[:100])  # nothing after --near
    got = _positions(tarn, models / "linear", tmp_path / "text")
    assert got["steps"] is None
    (tmp_path / "text").write_bytes(TEXT[:99])
    assert _positions(tarn, models / "linear", tmp_path / "text")["memory"]["near"] is None
    (tmp_path / "text").write_bytes(b"x")
    done = tarn("eval", models / "linear", tmp_path / "text", "--by-position")
    assert done.returncode == 3 and done.stdout == b"" and b"at least 2" in done.stderr


def test_flags_that_do_not_go_together(tarn, models, tmp_path):
    (tmp_path / "text").write_bytes(TEXT)
    path = tmp_path / "text"
    for flags in (
        ("--near", 5),
        ("--steps", 5),
        ("--by-position", "--per-token"),
        ("--by-position", "--near", 0),
        ("--max-tokens", -1),
    ):
        done = tarn("eval", models / "linear", path, *flags)
        assert done.returncode == 2 and done.stdout == b"", flags


def test_interrupt_gives_what_was_read(tarn_program, models):
    process = subprocess.Popen(
        [tarn_program, "eval", str(models / "linear"), "-", "--by-position", "--json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    # A pipe holds 64 KiB: once twice as much more has been read, many were scored.
    process.stdin.write(bytes(4 * 65536))
    process.stdin.flush()
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=600)
    got = json.loads(out)
    assert process.returncode == 130 and got["tokens"] > 0 and got["steps"] is None
