"""Help, version, wrong usage, info, verify, and the hand-over to training."""

import json
import os
import shutil
import struct
import subprocess

import numpy as np
import plain_model
import plain_pairs
import pytest

COMMANDS = [
    "train", "generate", "chat", "draw", "classify", "eval", "info", "bench", "verify", "tokenize",
    "import", "export", "embed",
]  # fmt: skip


def test_help_and_version(tarn):
    done = tarn("--help")
    assert done.returncode == 0 and done.stderr == b""
    for command in COMMANDS:
        assert command.encode() in done.stdout
    assert tarn("--version").stdout.startswith(b"tarn 0.")
    for command in COMMANDS[1:]:
        done = tarn(command, "--help")
        assert done.returncode == 0 and done.stderr == b""
        assert b"Example" in done.stdout and b"tarn " + command.encode() in done.stdout


@pytest.mark.parametrize(
    "arguments, words",
    [
        ((), "Usage"),
        (("genrate",), "did you mean 'generate'"),
        (("generate",), "DIR"),
        (("generate", "m", "--sede", "1"), "did you mean '--seed'"),
        (("generate", "--max-token=5"), "did you mean '--max-tokens'"),
        (("generate", "m", "--top-k", "many"), "top-k"),
        (("generate", "m", "--top-k", "-1"), "top-k"),
        (("generate", "m", "--top-p", "0"), "top_p"),
        (("generate", "m", "--min-p", "nan"), "min_p"),
        (("generate", "m", "--temperature", "101"), "temperature"),
        (("generate", "m", "--temperature", "hot"), "--temperature: want a number, got 'hot'"),
        (
            ("generate", "m", "--length-penalty", "101"),
            "--length-penalty: want a number from 0 to 100, got '101'",
        ),
        (("generate", "m", "--length-penalty", "nan"), "--length-penalty: want a number from 0"),
        (("generate", "m", "--max-tokens", "-1"), "max-tokens"),
        (("generate", "m", "--max-tokens", "99999999999999999999"), "max-tokens"),
        (("generate", "m", "--threads", "-2"), "threads"),
        (
            ("generate", "m", "--weights", "int3"),
            "--weights: want auto, f32, bf16, int8 or int4, got 'int3'",
        ),
        (("generate", "m", "--cache", "int4"), "--cache: want f32, bf16 or int8, got 'int4'"),
        (("generate", "m", "--seed", "-2"), "seed"),
        (("generate", "m", "--seed", "9223372036854775808"), "seed"),
        (("generate", "m", "--seed", "1.5"), "want a whole number"),
        (("generate", "m", "--prompt"), "prompt"),
        (("generate", "m", "surplus"), "surplus"),
        (("eval", "m"), "FILE"),
        (("eval", "m", "f", "--jsn"), "did you mean '--json'"),
        (("info",), "DIR"),
        (("bench",), "DIR"),
        (("bench", "m", "-p", "1,x"), "want a whole number"),
        (("bench", "m", "-r", "0"), "want a whole number"),
        (("bench", "m", "-o", "xml"), "--output: want md, csv or json, got 'xml'"),
        (("bench", "m", "--weights", "f32,int3"), "weights"),
        (("verify", "a", "b"), "b"),
    ],
)
def test_wrong_usage_is_exit_2_before_any_work(tarn, arguments, words):
    done = tarn(*arguments)
    assert done.returncode == 2 and done.stdout == b""
    assert words in done.stderr.decode()


def test_forced_simd_target(tarn, models):
    done = tarn("info", models / "linear", env={"TARN_FORCE_TARGET": "vax"})
    assert done.returncode == 2 and b"vax" in done.stderr.lower()
    assert b"SSE4" in tarn("--version", env={"TARN_FORCE_TARGET": "sse4"}).stdout


def test_info(tarn, models):
    got = json.loads(tarn("info", models / "linear", "--json").stdout)
    counts = {"total": 0}
    for name, shape in plain_model.shapes({**plain_model.CONFIG, "positions": "none"}).items():
        counts["total"] += int(np.prod(shape))
    parts = got["parameters"]
    assert parts["total"] == counts["total"]
    assert sum(v for k, v in parts.items() if k != "total") == parts["total"]
    assert parts["embedding"] == 256 * 32 and parts["positions"] == 0
    scaling = got["scaling"]
    assert scaling["tokens"] == [128, 1024, 8192, 65536]
    assert len(set(scaling["linear"]["step_flop"])) == 1
    assert scaling["softmax"]["step_flop"] == sorted(scaling["softmax"]["step_flop"])
    # A head of 8: S and z hold 8 x (8 + 1) numbers, a cache 8 + 8 per token.
    assert scaling["linear_is_less_from"]["memory"] == 72 / 16
    assert got["config"]["d_model"] == 32
    assert got["state_bytes_per_token"] == 0 and got["flop_per_token_growth"] == 0
    assert got["weight_bytes"] >= 4 * (parts["total"] - 0)
    assert got["bytes_read_per_token"] > got["state_bytes"]
    full = json.loads(tarn("info", models / "full", "--json").stdout)
    # Keys and values: 2 layers x 2 x 32 floats; growth 4 flop per float of them.
    assert full["state_bytes_per_token"] == 2 * 2 * 32 * 4
    assert full["flop_per_token_growth"] == 2 * 2 * 32 * 2
    text = tarn("info", models / "linear").stdout.decode()
    for words in ("state bytes", "feed_forward", "total", "d_model"):
        assert words in text
    # Keys that this model reads, and none of other mixers, positions and tasks.
    for words in (
        "clusters",
        "hash_bias",
        "kernel_size",
        "local_context",
        "n_decoder_layers",
        "rotary_base",
        "image_height",
    ):
        assert words not in text and words not in got["config"]
    assert text.count("arch ") == text.count("task ") == 1
    assert "attention_dropout" in full["config"] and "feature_map" not in full["config"]


def test_info_of_a_model_that_is_not_run(tarn, models, tmp_path):
    """Its files are described; generating with it is still refused."""
    folder = tmp_path / "topk"
    changes = plain_pairs.config_of("decoder", "exact-topk")
    _, weights = plain_model.write_model(folder, seed=1, **changes)
    done = tarn("info", folder, "--json")
    assert done.returncode == 0, done.stderr
    got = json.loads(done.stdout)
    assert "attention" in got["not_run_by_this_runtime"]
    assert "exact-topk" in got["not_run_by_this_runtime"]
    total = sum(w.size for w in weights.values())
    assert got["parameters"]["total"] == total
    assert got["weight_bytes_in_file"] == 4 * total
    runs = json.loads(tarn("info", models / "linear", "--json").stdout)
    assert "not_run_by_this_runtime" not in runs
    assert got["scaling"] == runs["scaling"]
    assert b"not run by this runtime" in tarn("info", folder).stdout
    assert tarn("generate", folder).returncode == 3


def test_info_of_a_model_of_frames(tarn, tmp_path):
    """It reads no tokens, so it has no tokenizer and no token table in the textbook count."""
    config = plain_pairs.config_of("encoder", task="ctc", n_classes=4, vocab_size=256)
    config |= {"input_dim": 7}
    shapes = plain_pairs.shapes({**config, "vocab_size": 7})
    d = config["d_model"]
    del shapes["value_embedding.weight"]
    shapes |= {"input_projection.weight": (d, 7), "input_projection.bias": (d,)}
    (tmp_path / "config.json").write_text(plain_model.file_text(config))
    (tmp_path / "labels.json").write_text('["", "a", "b", "c"]')
    weights = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    plain_model.write_safetensors(tmp_path / "model.safetensors", weights)
    done = tarn("verify", tmp_path)
    assert done.returncode == 3 and b"config.json: task: " in done.stdout
    assert b"valid" in done.stdout.splitlines()[1], done.stdout
    done = tarn("info", tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    got = json.loads(done.stdout)
    assert got["parameters_textbook"] == 12 * d * d * config["n_layers"] + 7 * d
    assert got["parameters"]["total"] == sum(w.size for w in weights.values())
    assert got["classes"] == ["", "a", "b", "c"] and "tokenizer_entries" not in got
    (tmp_path / "labels.json").write_text('["-", "a", "b", "c"]')
    for command in ("verify", "info"):
        done = tarn(command, tmp_path)
        assert done.returncode == 3 and b"labels.json: [0]" in done.stdout + done.stderr


def test_info_of_an_rnn_and_of_broken_files(tarn, tmp_path):
    folder = tmp_path / "rnn"
    d, vocab = 32, 256
    shapes = {
        "value_embedding.weight": (vocab, d),
        "predictor.weight": (vocab, d),
        "predictor.bias": (vocab,),
    }
    for i in range(2):
        shapes |= {f"rnn.weight_{way}_l{i}": (d, d) for way in ("ih", "hh")}
        shapes |= {f"rnn.bias_{way}_l{i}": (d,) for way in ("ih", "hh")}
    weights = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    plain_model.write_model(folder, weights=weights, **plain_pairs.config_of("rnn"))
    done = tarn("info", folder, "--json")
    assert done.returncode == 0, done.stderr
    got = json.loads(done.stdout)
    assert got["parameters"]["recurrent"] == 2 * (2 * d * d + 2 * d)
    assert got["parameters"]["total"] == sum(w.size for w in weights.values())
    assert "arch" in got["not_run_by_this_runtime"]
    assert "scaling" not in got and "parameters_textbook" not in got
    del weights["rnn.bias_hh_l1"]
    plain_model.write_safetensors(folder / "model.safetensors", weights)
    broken = tarn("info", folder)
    assert broken.returncode == 3 and b"rnn.bias_hh_l1" in broken.stderr
    (folder / "config.json").write_text("{")
    assert tarn("info", folder).returncode == 3


def fault(tarn, folder):
    """The lines of verify; the other commands must refuse the model as well."""
    done = tarn("verify", folder)
    assert done.returncode == 3 and done.stderr == b""
    assert len(done.stdout) < 100_000
    return done.stdout.decode().splitlines()


def test_verify_sound_models(tarn, models):
    for kind in ("linear", "full", "char"):
        done = tarn("verify", models / kind)
        assert done.returncode == 0 and done.stdout.startswith(b"ok ")
        assert done.stdout.count(b"\n") == 1


@pytest.mark.parametrize(
    "key, changes, wanted",
    [
        ("attention", {"attention": "reformer"}, "linear, full, local, aft-simple"),
        (
            "feature_map",
            {"feature_map": "favor", "n_dims": 8},
            "elu1, identity, relu, relu2, softplus, poly2",
        ),
    ],
)
def test_verify_names_what_this_runtime_refuses(tarn, tmp_path, key, changes, wanted):
    """Its files are faultless, but the model can only be trained, not run here."""
    config = plain_pairs.config_of("decoder", **changes)
    weights = {
        name: np.zeros(shape, np.float32) for name, shape in plain_pairs.shapes(config).items()
    }
    if key == "feature_map":  # its random directions are weights of each layer
        weights |= {
            f"layers.{i}.attention.inner_attention.feature_map.omega": np.zeros((8, 4), np.float32)
            for i in range(config["n_layers"])
        }
    plain_model.write_model(tmp_path, weights=weights, **config)
    lines = fault(tarn, tmp_path)
    assert len(lines) == 2 and lines[0].startswith(f"config.json: {key}: "), lines
    assert wanted in lines[0] and changes[key] in lines[0] and "this runtime" in lines[0]
    assert "valid" in lines[1] and "all finite" in lines[1]
    opened = tarn("generate", tmp_path)
    assert opened.returncode == 3 and lines[0] in opened.stderr.decode()


def test_verify_names_what_is_not_finite(tarn, tmp_path):
    config, weights = plain_model.write_model(tmp_path)
    weights["layers.1.linear1.weight"][2, 5] = np.inf
    weights["layers.1.linear1.weight"][3, 0] = np.nan
    plain_model.write_model(tmp_path, weights=weights)
    lines = fault(tarn, tmp_path)
    raw = (tmp_path / "model.safetensors").read_bytes()
    header = json.loads(raw[8 : 8 + struct.unpack("<Q", raw[:8])[0]])
    begin = header["layers.1.linear1.weight"]["data_offsets"][0]
    offset = 8 + struct.unpack("<Q", raw[:8])[0] + begin + 4 * (2 * 32 + 5)
    assert len(lines) == 1
    for words in (
        "model.safetensors",
        "layers.1.linear1.weight",
        f"byte {offset}",
        "2 NaN or infinite",
        f"element {2 * 32 + 5}",
    ):
        assert words in lines[0]


def test_verify_lists_every_fault(tarn, tmp_path):
    config, weights = plain_model.write_model(tmp_path)
    del weights["layers.0.norm1.bias"]
    weights["layers.0.linear2.bias"] = np.zeros(31, np.float32)
    weights["surplus"] = np.zeros((2, 3), np.float32)
    weights["predictor.bias"][0] = np.nan
    plain_model.write_model(tmp_path, weights=weights)
    (tmp_path / "tokenizer.json").write_text(
        '{"format_version":1,"type":"char","code_points":[2,1]}'
    )
    lines = fault(tarn, tmp_path)
    for words in (
        "layers.0.norm1.bias",
        "layers.0.linear2.bias",
        "surplus",
        "predictor.bias",
        "tokenizer.json",
    ):
        assert any(words in line for line in lines), words
    assert len(lines) == 5
    assert any("[32]" in line and "[31]" in line for line in lines)
    for command in (("generate", tmp_path), ("info", tmp_path), ("eval", tmp_path, "/dev/null")):
        done = tarn(*command)
        assert done.returncode == 3 and done.stdout == b"" and done.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    "name, contents, words",
    [
        ("config.json", None, "config.json"),
        ("config.json", b"{", "config.json"),
        ("config.json", b'{"format_version": NaN}', "config.json"),
        ("config.json", b"[" * 100_000, "config.json"),
        ("tokenizer.json", None, "tokenizer.json"),
        ("tokenizer.json", b"{}", "tokenizer.json"),
        ("model.safetensors", None, "model.safetensors"),
        ("model.safetensors", b"", "model.safetensors"),
        ("model.safetensors", b"\xff" * 8, "model.safetensors"),
        ("model.safetensors", struct.pack("<Q", 2) + b"{}", "model.safetensors"),
    ],
)
def test_verify_bad_files(tarn, tmp_path, name, contents, words):
    plain_model.write_model(tmp_path)
    (tmp_path / name).unlink()
    if contents is not None:
        (tmp_path / name).write_bytes(contents)
    assert any(words in line for line in fault(tarn, tmp_path))
    done = tarn("generate", tmp_path)
    assert done.returncode == 3 and done.stderr.count(b"\n") == 1


def test_no_directory_is_a_bad_model(tarn, tmp_path):
    for command in ("generate", "info", "verify"):
        assert tarn(command, tmp_path / "absent").returncode == 3


@pytest.mark.parametrize(
    "arguments",
    [
        ("eval", "{model}"),
        ("tokenize", "{model}"),
        ("tokenize",),
        ("tokenize", "--train", "--out", "{out}"),
        ("info",),
        ("bench",),
    ],
)
def test_a_missing_file_is_bad_data(tarn, models, tmp_path, arguments):
    """Exit status 3 in every subcommand, as in `tarn train`, and one natural sentence."""
    places = {"model": models / "linear", "out": tmp_path / "out"}
    done = tarn(*(word.format(**places) for word in arguments), tmp_path / "absent")
    assert done.returncode == 3 and done.stdout == b""
    assert done.stderr.startswith(f"tarn {arguments[0]}: error: {tmp_path}/absent".encode())
    assert done.stderr.endswith(b": want a readable file, got no such file or directory\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("--version",),
        *((command, "--help") for command in COMMANDS),
        ("info", "{model}"),
        ("verify", "{model}"),
        ("eval", "{model}", __file__),
        ("tokenize", "{model}", __file__),
    ],
)
def test_output_that_cannot_be_written_is_a_failure(tarn_program, models, arguments):
    words = [word.format(model=models / "linear") for word in arguments]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [tarn_program, *words], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 1
    assert done.stderr.decode().endswith(
        "error: standard output: want a file that can be written, got no space left on device\n"
    )


HANDED_OVER = ("train", "experiment")


@pytest.mark.parametrize("command", HANDED_OVER)
def test_says_what_is_missing(tarn_program, tmp_path, command):
    """It runs a copy of the program alone, with no tarn-train anywhere."""
    shutil.copy(tarn_program, tmp_path / "tarn")
    done = subprocess.run(
        [tmp_path / "tarn", command, "--help"],
        capture_output=True,
        env={"PATH": "/nonexistent"},
        check=False,
    )
    assert done.returncode == 1 and done.stdout == b""
    assert f"tarn-{command}".encode() in done.stderr and b"torch" in done.stderr


@pytest.mark.parametrize("command", HANDED_OVER)
def test_hands_over_arguments_and_exit_code(tarn_program, tmp_path, command):
    """The first of these is taken: next to the program, in libexec, on PATH."""
    (tmp_path / "bin").mkdir()
    shutil.copy(tarn_program, tmp_path / "bin" / "tarn")
    environment = {"PATH": f"{tmp_path}/path:{os.environ['PATH']}"}
    for place, code in (("path", 7), ("libexec/tarn", 130), ("bin", 3)):
        folder = tmp_path / place
        folder.mkdir(parents=True, exist_ok=True)
        program = folder / f"tarn-{command}"
        program.write_text(f'#!/bin/sh\necho "{place}:$*"\nexit {code}\n')
        program.chmod(0o755)
        done = subprocess.run(
            [tmp_path / "bin" / "tarn", command, "--data", "a b", "--help"],
            capture_output=True,
            env=environment,
            check=False,
        )
        assert done.returncode == code
        assert done.stdout == f"{place}:--data a b --help\n".encode()
