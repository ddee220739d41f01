import json
import os
import re
import signal
import subprocess

import numpy as np
import plain_model
import pytest

KEYS = {
    "text",
    "prompt_tokens",
    "tokens",
    "prefill_ms",
    "decode_ms",
    "tokens_per_s",
    "state_bytes",
    "seed",
}


def generate_json(tarn, *arguments, **options):
    done = tarn("generate", *arguments, "--json", **options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_json_holds_every_promised_key(tarn, models):
    got = generate_json(
        tarn, models / "linear", "--prompt", "hello", "--max-tokens", 40, "--seed", 7
    )
    assert KEYS <= got.keys()
    assert got["prompt_tokens"] == 5 and got["tokens"] == 40 and got["seed"] == 7
    # 2 layers x 4 heads x (8 x 8 + 8) floats, and at most room for alignment.
    assert 2304 <= got["state_bytes"] <= 2304 + 4096
    assert got["tokens_per_s"] == pytest.approx(1000 * 40 / got["decode_ms"])
    assert got["decode_us_first"] > 0 and got["decode_us_last"] > 0


def test_default_is_256_tokens_and_a_reported_random_seed(tarn, models):
    first, second = (generate_json(tarn, models / "linear", "--prompt", "x") for _ in range(2))
    assert first["tokens"] == 256
    assert first["seed"] != second["seed"]
    again = generate_json(tarn, models / "linear", "--prompt", "x", "--seed", first["seed"])
    assert again["text"] == first["text"]


def test_stdout_is_the_text_and_stderr_the_figures(tarn, models):
    arguments = (models / "char", "--prompt", "ab", "--max-tokens", 60, "--seed", 3)
    plain = tarn("generate", *arguments)
    assert plain.returncode == 0
    assert plain.stdout.decode() == generate_json(tarn, *arguments)["text"]
    figures = plain.stderr.decode()
    for words in ("tokens/s", "first token", "bytes at start", "bytes at end", "seed"):
        assert words in figures
    start, end = re.search(r"(\d+) bytes at start, (\d+) bytes at end", figures).groups()
    assert start == end


def test_greedy_follows_the_plain_model(tarn, models, tmp_path):
    config, weights = plain_model.write_model(tmp_path / "m", seed=11)
    tokens = list(b"To be")
    for _ in range(30):
        rows = plain_model.logits(config, weights, np.array(tokens))
        best = np.sort(rows[-1])
        if best[-1] - best[-2] < 1e-3:  # too near a tie for float32 to decide
            break
        tokens.append(int(rows[-1].argmax()))
    count = len(tokens) - 5
    assert count >= 5
    done = tarn(
        "generate", tmp_path / "m", "--prompt", "To be", "--temperature", 0, "--max-tokens", count
    )
    assert done.stdout == bytes(tokens[5:])


@pytest.mark.parametrize("kind", ["linear", "full"])
def test_stop_ends_the_text(tarn, models, kind):
    arguments = (models / kind, "--prompt", "seed", "--seed", 1, "--max-tokens", 120)
    whole = tarn("generate", *arguments).stdout
    # Bytes of random weights: two that are characters.
    stop = re.search(rb"[!-Z^-~]{2}", whole[20:])[0].decode()
    begin = whole.index(stop.encode())
    done = tarn("generate", *arguments, "--stop", "[a,b]", "--stop", stop)
    assert done.returncode == 0, done.stderr
    assert done.stdout == whole[:begin]
    got = generate_json(tarn, *arguments, "--stop", stop)
    assert got["finish_reason"] == "stop" and got["tokens"] == begin + 2
    assert got["text"] == whole[:begin].decode(errors="replace")
    assert generate_json(tarn, *arguments)["finish_reason"] == "length"
    wrong = tarn("generate", *arguments, "--stop", "")
    assert wrong.returncode == 2 and b"stop: want texts of 1 to 4096 bytes" in wrong.stderr


@pytest.mark.parametrize("kind", ["linear", "full"])
def test_threads_change_nothing(tarn, models, kind):
    texts = {
        tarn(
            "generate",
            models / kind,
            "--prompt",
            "seed",
            "--seed",
            1,
            "--max-tokens",
            200,
            "--threads",
            threads,
        ).stdout
        for threads in (1, 2, 3)
    }
    assert len(texts) == 1


def test_softmax_state_grows_and_linear_does_not(tarn, models):
    sizes = {}
    for kind in ("linear", "full"):
        sizes[kind] = [
            generate_json(tarn, models / kind, "--max-tokens", n)["state_bytes"] for n in (10, 2000)
        ]
    assert sizes["linear"][0] == sizes["linear"][1]
    assert sizes["full"][0] < sizes["full"][1]


def test_prompts_of_every_kind(tarn, models):
    folder = models / "linear"
    assert (
        generate_json(
            tarn, folder, "--prompt", "-", "--max-tokens", 1, stdin=b"\xff\x00 any bytes"
        )["prompt_tokens"]
        == 12
    )
    for prompt in (
        "--looks-like-an-option",
        "-1",
        "[1,2]",
        "a,b",
        "{x}",
        "%%",
        "two\nlines",
        "'\"",
    ):
        assert generate_json(tarn, folder, "--prompt", prompt, "--max-tokens", 1)[
            "prompt_tokens"
        ] == len(prompt)
    for nothing in (("--prompt", ""), ()):
        empty = generate_json(tarn, folder, *nothing, "--temperature", 0, "--max-tokens", 9)
        newline = generate_json(
            tarn, folder, "--prompt", "\n", "--temperature", 0, "--max-tokens", 9
        )
        assert empty["prompt_tokens"] == 0 and empty["text"] == newline["text"]
    long = generate_json(tarn, folder, "--prompt", "-", "--max-tokens", 1, stdin=b"x" * 100_000)
    assert long["prompt_tokens"] == 100_000


def test_zero_tokens(tarn, models):
    got = generate_json(tarn, models / "linear", "--prompt", "a", "--max-tokens", 0)
    assert got["text"] == "" and got["tokens"] == 0 and got["prompt_tokens"] == 1


def test_unknown_character_is_named(tarn, models):
    done = tarn("generate", models / "char", "--prompt", "ab\u00fc")
    assert done.returncode == 2 and done.stdout == b""
    assert b"byte 2" in done.stderr and b"U+00FC" in done.stderr


def test_rows_without_a_character_are_never_drawn(tarn, tmp_path):
    plain_model.write_model(tmp_path / "m", characters="ab", vocab_size=300)
    got = generate_json(
        tarn,
        tmp_path / "m",
        "--prompt",
        "a",
        "--temperature",
        5,
        "--top-k",
        0,
        "--top-p",
        1,
        "--min-p",
        0,
        "--max-tokens",
        500,
    )
    assert set(got["text"]) == {"a", "b"}


def test_stream_never_shows_half_a_character(tarn_program, models):
    process = subprocess.Popen(
        [
            tarn_program,
            "generate",
            str(models / "char"),
            "--prompt",
            "a",
            "--temperature",
            "2",
            "--top-k",
            "0",
            "--top-p",
            "1",
            "--min-p",
            "0",
            "--max-tokens",
            "20000",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    reads = 0
    while piece := os.read(process.stdout.fileno(), 65536):
        piece.decode()  # each write ends at a whole character
        reads += 1
    process.stdout.close()
    assert process.wait() == 0 and reads > 1


def test_interrupt_prints_figures_and_exits_130(tarn_program, models):
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        process = subprocess.Popen(
            [
                tarn_program,
                "generate",
                str(models / "linear"),
                "--prompt",
                "a",
                "--max-tokens",
                "1000000000",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        os.read(process.stdout.fileno(), 1)  # it is running
        process.send_signal(number)
        _, figures = process.communicate(timeout=600)
        assert process.returncode == code
        assert b"tokens/s" in figures and b"bytes at end" in figures


def test_interrupt_leaves_whole_json(tarn_program, models):
    # Nothing shows from outside that it has reached its first token: a run that
    # was stopped earlier is repeated with more time.
    for seconds in (1, 4, 16, 64, 256):
        process = subprocess.Popen(
            [
                tarn_program,
                "generate",
                str(models / "linear"),
                "--prompt",
                "-",
                "--json",
                "--max-tokens",
                "1000000000",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        process.stdin.write(b"x" * 5000)
        process.stdin.close()
        process.stdin = None
        try:
            process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            pass
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=600)
        got = json.loads(out) if process.returncode == 130 and out else None
        if got and got["prompt_tokens"] == 5000 and got["tokens"] > 0:
            return
    pytest.fail(f"exit {process.returncode}, {out!r}")


def test_closed_pipe_ends_quietly(tarn_program, models):
    process = subprocess.Popen(
        [
            tarn_program,
            "generate",
            str(models / "linear"),
            "--prompt",
            "a",
            "--max-tokens",
            "1000000000",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    os.read(process.stdout.fileno(), 1)
    process.stdout.close()
    assert process.wait(timeout=600) == 0
    assert process.stderr.read() == b""
    process.stderr.close()


def test_full_disk_is_a_failure(tarn_program, models):
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [tarn_program, "generate", str(models / "linear"), "--prompt", "a"],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 1 and b"standard output" in done.stderr


def test_weights_that_give_nan_are_a_bad_model(tarn, tmp_path):
    config, weights = plain_model.write_model(tmp_path / "m")
    weights["predictor.bias"][3] = np.nan
    plain_model.write_model(tmp_path / "m", weights=weights)
    done = tarn("generate", tmp_path / "m", "--prompt", "a")
    assert done.returncode == 3 and done.stderr.count(b"\n") == 1 and b"nan" in done.stderr


def test_bf16_weights_run(tarn, models):
    got = generate_json(
        tarn, models / "linear", "--prompt", "a", "--weights", "bf16", "--max-tokens", 5
    )
    assert got["tokens"] == 5


@pytest.mark.parametrize("cache", ["bf16", "int8"])
def test_rounded_keys_and_values_run(tarn, models, cache):
    got = generate_json(tarn, models / "full", "--prompt", "a", "--cache", cache, "--max-tokens", 5)
    whole = generate_json(tarn, models / "full", "--prompt", "a", "--max-tokens", 5)
    assert got["tokens"] == 5
    assert got["state_bytes"] < 0.7 * whole["state_bytes"]
    done = tarn("generate", models / "linear", "--prompt", "a", "--cache", cache)
    assert done.returncode == 2 and b"cache: want f32, as no layer keeps keys" in done.stderr


def test_a_long_run_keeps_memory_and_state_flat(tarn_program, models):
    """The resident set is the same after 20,000 and after 200,000 tokens."""

    def peak(tokens):
        script = (
            "import resource, subprocess, sys; "
            "subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, "
            "stderr=subprocess.DEVNULL, check=True); "
            "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
        )
        import sys

        return int(
            subprocess.run(
                [
                    sys.executable,
                    "-c",
                    script,
                    tarn_program,
                    "generate",
                    str(models / "linear"),
                    "--prompt",
                    "a",
                    "--seed",
                    "1",
                    "--max-tokens",
                    str(tokens),
                ],
                capture_output=True,
                check=True,
                timeout=1200,
            ).stdout
        )

    # Which pages of the program itself are in memory differs from run to run, by up to
    # 900 KiB, in both directions: the middle one of five runs.
    def middle(tokens):
        return sorted(peak(tokens) for _ in range(5))[2]

    assert middle(200_000) <= middle(20_000) + 512  # KiB
