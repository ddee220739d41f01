"""`tarn bench`: tables that compare with those of llama-bench, figures that add up."""

import csv
import io
import json
import signal
import subprocess
import sys

import conftest
import pytest

# Small enough to be quick, one case of everything.
SMALL = ("-p", "8", "-n", "4", "-r", "3", "--batch", "2,3", "--batch-steps", "2")
LLAMA_BENCH_KEYS = (
    "build_commit build_number cpu_info gpu_info backends model_filename model_type "
    "model_size model_n_params n_batch n_ubatch n_threads cpu_mask cpu_strict poll "
    "type_k type_v n_gpu_layers split_mode main_gpu no_kv_offload flash_attn "
    "tensor_split use_mmap embeddings n_prompt n_gen n_depth test_time avg_ns "
    "stddev_ns avg_ts stddev_ts"
).split()


def tables(text):
    """Markdown tables as lists of rows, each a list of cells."""
    found = []
    for block in text.split("\n\n"):
        lines = [line for line in block.splitlines() if line.startswith("|")]
        if lines:
            found.append([[cell.strip() for cell in line.strip("|").split("|")] for line in lines])
    return found


def test_markdown_has_the_columns_of_llama_bench(tarn, models):
    done = tarn("bench", models / "linear", *SMALL, "-t", "1,2", "-d", "0,5")
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode()
    speed, steps, states = tables(text)
    assert speed[0] == ["model", "size", "params", "backend", "threads", "test", "t/s"]
    assert [row[5] for row in speed[2:]] == ["pp8", "tg4", "pp8 @ d5", "tg4 @ d5"] * 2
    assert [row[4] for row in speed[2:]] == ["1"] * 4 + ["2"] * 4
    for row in speed[2:]:
        assert row[0] == "linear 0.03M F32" and row[1].endswith(" MiB")
        mean, deviation = row[6].split(" \u00b1 ")
        assert float(mean) > 0 and float(deviation) >= 0
    # Columns line up; on a busy machine a deviation may be wider than the last.
    starts = {line.rindex("|", 0, -1) for line in text.split("\n\n")[0].splitlines()}
    assert len(starts) == 1
    assert [row[2] for row in steps[2:5]] == ["tg4", "tg2 x 2", "tg2 x 3"]
    assert len(states) == 2 + 4  # threads x depths
    assert "\nbuild: " in text
    assert b"GB/s" in done.stderr  # the measured bandwidth


def test_caches_are_measured_by_their_type(tarn, models):
    done = tarn("bench", models / "full", *SMALL, "-d", "6", "-o", "json", "--cache", "f32,int8")
    assert done.returncode == 0
    rows = json.loads(done.stdout)
    assert [row["type_k"] for row in rows] == ["f32"] * 4 + ["int8"] * 4
    assert all(row["type_v"] == row["type_k"] for row in rows)
    assert 2 * rows[-1]["session_bytes"] < rows[0]["session_bytes"]


def test_json_has_its_keys_and_adds_up(tarn, models):
    done = tarn("bench", models / "full", *SMALL, "-d", "6", "-o", "json", "--weights", "f32,bf16")
    assert done.returncode == 0
    rows = json.loads(done.stdout)
    assert len(rows) == 2 * 4
    for row in rows:
        assert list(row)[: len(LLAMA_BENCH_KEYS)] == LLAMA_BENCH_KEYS
        assert len(row["samples_ns"]) == len(row["samples_ts"]) == 3
        tokens = row["n_prompt"] + row["n_gen"] * row["n_sessions"]
        for ns, rate in zip(row["samples_ns"], row["samples_ts"]):
            assert rate == pytest.approx(1e9 * tokens / ns)
        assert row["avg_ns"] == pytest.approx(sum(row["samples_ns"]) / 3, abs=1)
        # Keys and values: 2 layers x 2 x 32 floats per token.
        assert row["session_bytes"] == 6 * 2 * 2 * 32 * 4
        assert row["read_bytes_per_s"] > 0 and row["fork_us"] > 0 and row["copy_us"] >= 0
    wide, narrow = rows[1]["bytes_per_step"], rows[5]["bytes_per_step"]
    assert (rows[1]["n_gen"], rows[5]["weight_type"]) == (4, "bf16")
    cache = (6 + 2) * 2 * 2 * 32 * 4
    # Biases and norms are counted at the weights' width: bytes halve exactly.
    assert wide - cache == 2 * (narrow - cache)
    more = rows[3]["bytes_per_step"] - rows[2]["bytes_per_step"]
    assert more == (6 + 1) * 2 * 2 * 32 * 4  # one session more


def test_csv_agrees_with_json(tarn, models):
    done = tarn("bench", models / "linear", *SMALL, "-o", "csv")
    rows = list(csv.DictReader(io.StringIO(done.stdout.decode())))
    assert [row["n_sessions"] for row in rows] == ["1", "1", "2", "3"]
    assert list(rows[0])[: len(LLAMA_BENCH_KEYS)] == LLAMA_BENCH_KEYS
    assert all(float(row["avg_ts"]) > 0 for row in rows)
    assert rows[0]["use_mmap"] == "true" and rows[0]["model_filename"].endswith("linear")


def test_zeros_leave_tests_out(tarn, models):
    done = tarn(
        "bench", models / "linear", "-p", "0", "-n", "3", "--batch", "0", "-r", "1", "-o", "json"
    )
    rows = json.loads(done.stdout)
    assert [(row["n_prompt"], row["n_gen"]) for row in rows] == [(0, 3)]
    assert rows[0]["stddev_ns"] == 0


def test_depths_in_any_order_and_no_warm_up(tarn, models):
    """States at a depth are made once; a smaller depth starts over."""
    done = tarn(
        "bench",
        models / "full",
        "-p",
        "3",
        "-n",
        "2",
        "--batch",
        "2",
        "-d",
        "4,9,2",
        "-r",
        "2",
        "--warm-ups",
        "0",
        "-o",
        "json",
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [row["n_depth"] for row in rows] == [4] * 3 + [9] * 3 + [2] * 3
    for row in rows:
        assert row["session_bytes"] == row["n_depth"] * 2 * 2 * 32 * 4
        assert len(row["samples_ns"]) == 2
    refused = tarn("bench", models / "full", "--warm-ups", "-1")
    assert refused.returncode == 2 and b"--warm-ups" in refused.stderr


def test_a_bad_model_leaves_stdout_empty(tarn, tmp_path):
    done = tarn("bench", tmp_path)
    assert done.returncode == 3 and done.stdout == b""


def test_interrupt_leaves_whole_results(models):
    """A long run that is interrupted completes its JSON and exits with 130."""
    process = subprocess.Popen(
        [
            conftest.TARN,
            "bench",
            models / "linear",
            "-p",
            "4",
            "-n",
            "2000000000",
            "--batch",
            "0",
            "-r",
            "1",
            "-o",
            "json",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    first = process.stdout.readline() + process.stdout.readline()
    assert first.startswith(b"[\n") and b"n_prompt" in first
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=600)
    assert process.returncode == 130
    assert [row["n_prompt"] for row in json.loads(first + rest)] == [4]


def test_random_model_writes_what_tarn_loads(tarn, tmp_path):
    script = conftest.ROOT / "bench" / "random_model.py"
    for name, flags in {
        "plain": (),
        "full": ("--attention", "full", "--positions", "rotary", "--dtype", "bf16"),
        "concat": (
            "--positions",
            "sinusoidal",
            "--combine",
            "concat",
            "--dtype",
            "f16",
            "--ff",
            "40",
            "--vocab",
            "300",
        ),
    }.items():
        subprocess.run(
            [
                sys.executable,
                script,
                tmp_path / name,
                "--width",
                "32",
                "--layers",
                "2",
                "--heads",
                "4",
                *flags,
            ],
            check=True,
        )
        done = tarn("verify", tmp_path / name)
        assert done.stdout.startswith(b"ok"), done.stdout
    done = tarn("bench", tmp_path / "full", *SMALL, "-o", "json")
    assert json.loads(done.stdout)[0]["model_n_params"] > 20000
