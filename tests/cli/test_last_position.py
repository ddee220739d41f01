"""A table of learned positions has an end, which every subcommand names or respects."""

import json

import numpy as np
import plain_model
import plain_pairs
import pytest

ROWS = 16
REFUSED = f"the model has {ROWS} learned positions (max_positions)".encode()
TEXT = b"It was the best of times, it was the worst of times.\n"


@pytest.fixture
def model(tmp_path):
    """(folder, config, weights)"""
    return tmp_path / "m", *plain_model.write_model(tmp_path / "m", seed=5, max_positions=ROWS)


def test_generate_refuses_a_number_and_fits_its_default(tarn, model):
    folder, _, _ = model
    done = tarn("generate", folder, "--prompt", "abc", "--max-tokens", ROWS - 2)
    assert done.returncode == 2 and done.stdout == b""
    assert b"max_tokens: want at most 13: " + REFUSED + b", got 14" in done.stderr
    done = tarn("generate", folder, "--prompt", "a" * (ROWS + 1), "--max-tokens", 0)
    assert done.returncode == 2 and b"prompt: want at most 16: " + REFUSED in done.stderr
    for flags, count in (((), 13), (("--max-tokens", 13), 13), (("--max-tokens", 2), 2)):
        done = tarn("generate", folder, "--prompt", "abc", "--json", *flags)
        assert done.returncode == 0 and json.loads(done.stdout)["tokens"] == count


def test_eval_reads_windows(tarn, model, tmp_path):
    """Each begins with the last token of the one before, so that all but the first
    token of the text are predicted."""
    folder, config, weights = model
    tokens, want = np.frombuffer(TEXT, np.uint8), []
    for begin in range(0, len(tokens) - 1, ROWS - 1):
        window = tokens[begin : begin + ROWS]
        want.extend(plain_model.log_probabilities(config, weights, window))
    (tmp_path / "text").write_bytes(TEXT)
    for name, stdin in ((tmp_path / "text", b""), ("-", TEXT)):
        done = tarn("eval", folder, name, "--per-token", "--json", stdin=stdin)
        assert done.returncode == 0, done.stderr
        got = json.loads(done.stdout)
        assert got["tokens"] == len(TEXT) == len(want) + 1
        np.testing.assert_allclose(got["logprobs"], want, atol=1e-4, rtol=1e-4)


def test_positions_of_a_text_are_those_of_the_table(tarn, model, tmp_path):
    (tmp_path / "text").write_bytes(TEXT)
    flags = ("--by-position", "--near", 4)
    done = tarn("eval", model[0], tmp_path / "text", *flags)
    assert done.returncode == 2 and b"tokens: want at most 16" in done.stderr
    for limit in (12, ROWS):
        done = tarn("eval", model[0], tmp_path / "text", *flags, "--max-tokens", limit, "--json")
        assert done.returncode == 0 and json.loads(done.stdout)["tokens"] == limit


def test_bench_fits_its_defaults_and_refuses_others(tarn, model):
    done = tarn("bench", model[0], "-r", 1, "-o", "json", "-d", 4)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert {(row["n_prompt"], row["n_gen"]) for row in rows[:2]} == {(12, 0), (0, 12)}
    for flags, named in (
        (("-p", 17), b"--n-prompt"),
        (("-n", 17), b"--n-gen"),
        (("-d", 17), b"--n-depth"),
        (("--batch-steps", 17), b"--batch-steps"),
        (("-p", 16, "-d", 1), b"--n-prompt"),
    ):
        done = tarn("bench", model[0], "-r", 1, *flags)
        assert done.returncode == 2 and named in done.stderr and done.stdout == b""


def test_pairs_and_classes(tarn, tmp_path):
    config = plain_pairs.config_of("seq2seq", max_positions=ROWS)
    plain_pairs.write_model(tmp_path / "pairs", config, seed=1)
    done = tarn("generate", tmp_path / "pairs", "--prompt", "a" * (ROWS + 1))
    assert done.returncode == 2 and REFUSED in done.stderr
    done = tarn("generate", tmp_path / "pairs", "--prompt", "a" * ROWS, "--json")
    assert done.returncode == 0, done.stderr
    assert all(one["tokens"] <= ROWS for one in json.loads(done.stdout)["hypotheses"])
    config = plain_pairs.config_of("encoder", max_positions=ROWS)
    plain_pairs.write_model(tmp_path / "classes", config, labels=["x", "y", "z"])
    done = tarn("classify", tmp_path / "classes", stdin=b"a" * (ROWS + 1) + b"\n")
    assert done.returncode == 2 and REFUSED in done.stderr
