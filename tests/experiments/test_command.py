"""`tarn experiment` as a program: exit codes, the list, stopping and going on."""

import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import time

import pytest
import torch
import toy

from experiments.core import (
    ExperimentError,
    command,
    digest,
    report,
    result,
    run_tarn,
    tarn_json,
    training,
)
from experiments.core.command import _parser, _settings

BUILD = os.environ.get("TARN_BUILD")
needs_trainer = pytest.mark.skipif(
    not BUILD or not (pathlib.Path(BUILD) / "tarn-train").is_file(), reason="no tarn-train here"
)


def finish(process, timeout=600):
    out, errors = process.communicate(timeout=timeout)
    return process.returncode, out, errors


@pytest.fixture
def quick(command, text):
    """The toy at quick size; more arguments, the environment."""

    def start(*arguments, **environment):
        return command(
            "scaling",
            "--size",
            "quick",
            "--threads",
            1,
            "--out",
            "work",
            "--data",
            f"text-shakespeare={text}",
            *arguments,
            **environment,
        )

    return start


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["scaling", "--size", "huge"],
        ["scaling", "--seed", "-1"],
        ["scaling", "--seed", "1e3"],
        ["scaling", "--threads", "0"],
        ["scaling", "--attention", "magic"],
        ["scaling", "--attention", "lstm"],
        ["scaling", "--data", "nothing=x"],
        ["scaling", "--data", "mnist"],
        ["scaling", "--data", "mnist="],
        ["scaling", "--siz", "x"],
        ["scaling", "--device", "gpu"],
    ],
)
def test_wrong_usage(command, arguments):
    code, out, errors = finish(command(*arguments))
    assert code == 2 and out == ""
    assert errors.startswith("tarn experiment: error: ") and "Traceback" not in errors


def test_help(command):
    code, out, errors = finish(command("--help"))
    assert code == 0 and errors == ""
    assert "examples:" in out and "130 interrupted" in out


@pytest.mark.parametrize("arguments", [["--help"], ["list"]])
def test_output_that_cannot_be_written(command, arguments):
    with open("/dev/full", "w") as full:
        code, _, errors = finish(command(*arguments, stdout=full))
    assert code == 1 and errors.startswith("tarn experiment: error: ") and "space" in errors


def test_missing_data(command, tmp_path):
    code, out, errors = finish(command("scaling", "--data", "text-shakespeare=absent"))
    assert code == 3 and out == "" and "absent: not there" in errors
    assert not (tmp_path / "models").exists()


def test_report_without_results(command):
    code, out, errors = finish(command("report", "--out", "absent"))
    assert code == 3 and "want results of experiments, got none" in errors and out == ""


def test_folder_that_cannot_be_written(quick, tmp_path):
    (tmp_path / "work").write_text("a file")
    code, _, errors = finish(quick())
    assert code == 1 and "work" in errors and "Traceback" not in errors


def test_run_list_report(quick, command, text, tmp_path):
    data = ["--data", f"text-shakespeare={text}"]
    code, out, errors = finish(quick())
    assert code == 0 and "holds: linear loss" in out and "not run yet" in errors
    listed = finish(command("list", "--size", "quick", "--threads", 1, "--out", "work", *data))
    assert listed[0] == 0 and listed[1].split() == ["scaling", "Figure", "1", "current"]
    (text / "input.txt").write_text("changed")
    listed = finish(command("list", "--size", "quick", "--threads", 1, "--out", "work", *data))
    assert "data changed; planned" in listed[1]
    code, out, _ = finish(command("report", "--out", "work"))
    assert code == 0 and out == "docs/paper/README.md\ndocs/paper/scaling.md\n"
    before = (tmp_path / "docs/paper/scaling.md").read_text()
    (tmp_path / "work/scaling/result.json").unlink()
    code, out, _ = finish(command("report", "--redraw"))
    assert code == 0 and (tmp_path / "docs/paper/scaling.md").read_text() == before


def test_other_settings_have_their_own_folder(command, text, tmp_path):
    data = ["--data", f"text-shakespeare={text}"]
    for extra in ([], ["--attention", "linear"], ["--seed", "3"]):
        assert finish(command("scaling", "--size", "quick", *data, *extra))[0] == 0
    folders = sorted(one.name for one in (tmp_path / "models/paper").iterdir())
    assert folders == ["quick", "quick-linear", "quick-seed3"]
    result = json.loads((tmp_path / "models/paper/quick-linear/scaling/result.json").read_text())
    assert list(result["measured"]["curves"]) == ["linear"]
    assert result["command"] == "tarn experiment scaling --size quick --attention linear"


def test_a_device_that_is_not_here(quick, tmp_path):
    """Refused in one line, with nothing made."""
    if torch.cuda.is_available():
        pytest.skip("a CUDA device is here")
    code, out, errors = finish(quick("--device", "cuda"))
    assert code == 2 and out == "" and len(errors.splitlines()) == 1
    assert "--device: want cpu" in errors and "got cuda" in errors
    assert not (tmp_path / "work").exists()


def device_line(*words):
    return _parser().parse_args(["scaling", *words])


def test_a_device_has_its_own_folder_and_reaches_the_trainer(text, monkeypatch, progress):
    given = ["--data", f"text-shakespeare={text}", "--device", "cuda"]
    (cuda,) = _settings(device_line(*given), ["scaling"])
    (cpu,) = _settings(device_line(*given[:2]), ["scaling"])
    assert cuda.out == pathlib.Path("models/paper/cpu-cuda/scaling")
    assert cpu.out == pathlib.Path("models/paper/cpu/scaling")
    assert cuda.recorded()["device"] == "cuda" and cpu.recorded()["device"] == "cpu"
    assert cuda.command().endswith("--device cuda") and "--device" not in cpu.command()
    assert digest.of_json(cuda.inputs()) != digest.of_json(cpu.inputs())
    # The report of such results is no report on the paper's either.
    written = []
    monkeypatch.setattr(report, "write", lambda source, to: written.append((source, to)) or [])
    command._report(device_line("--device", "cuda"))
    assert written == [(pathlib.Path("models/paper/cpu-cuda"), pathlib.Path("docs/paper-cuda"))]
    asked = []

    def stop(jobs, *rest):
        del rest
        asked.extend(job.command for job in jobs)
        raise ExperimentError("enough")

    monkeypatch.setattr(training, "_run", stop)
    monkeypatch.setattr(type(cuda), "tarn", pathlib.Path("tarn"))
    for one in (cuda, cpu):
        here = dataclasses.replace(one, out=text.parent / one.device)
        with pytest.raises(ExperimentError, match="enough"):
            training.train(here, progress, "train", ["--steps", 3])
    devices = [words[words.index("--device") + 1] for words in asked]
    assert devices == ["cuda", "cpu"]


def test_results_of_another_device_are_not_replaced(quick, settings, tmp_path, monkeypatch):
    assert finish(quick())[0] == 0
    path = tmp_path / "work/scaling/result.json"
    before = path.read_bytes()
    stored = json.loads(before)
    assert stored["settings"]["device"] == "cpu" and "device" not in stored["machine"]
    here = dataclasses.replace(settings, out=tmp_path / "work/scaling")
    command._check_device([here])
    with pytest.raises(ExperimentError, match="--out: want a folder without results of another"):
        command._check_device([dataclasses.replace(here, device="cuda")])
    # One from before there was a choice is the CPU's.
    del stored["settings"]["device"]
    path.write_text(json.dumps(stored))
    assert result.device_of(here) == "cpu"
    assert result.device_of(settings) == ""  # nothing there


def test_an_experiment_of_the_cpu_alone(text, monkeypatch):
    alone = dataclasses.replace(toy.EXPERIMENT, devices=("cpu",))
    monkeypatch.setattr(toy, "EXPERIMENT", alone)
    words = device_line("--data", f"text-shakespeare={text}", "--device", "cuda")
    with pytest.raises(ExperimentError, match="--device: scaling: want cpu") as caught:
        _settings(words, ["scaling"])
    assert caught.value.code == 2
    assert _settings(words, ["scaling", "scaling"]) == []  # of all: left out


def steps(folder):
    """The steps in a log, which may be growing."""
    try:
        lines = (folder / "log.jsonl").read_text().splitlines()
        return [json.loads(line)["step"] for line in lines]
    except (OSError, ValueError):
        return []


def wait_for(condition, process, seconds=600):
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)


# Enough that a signal sent at the eighth arrives before the last, on any machine.
STEPS = 1200


@needs_trainer
@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_stop_and_go_on(quick, tmp_path, number, code):
    """Stopped in the second training: the first is kept, the second resumed."""
    runs = tmp_path / "work/scaling/runs"
    process = quick(TOY_STEPS=str(STEPS))
    wait_for(lambda: len(steps(runs / "train-softmax")) >= 8, process)
    process.send_signal(number)
    got, out, errors = finish(process)
    assert got == code and out == ""
    assert "stopped; measurements are kept. Continue with: tarn experiment scaling" in errors
    assert not (tmp_path / "work/scaling/result.json").exists()
    stopped_at = len(steps(runs / "train-softmax"))
    assert 8 <= stopped_at < STEPS and (runs / "train-softmax/checkpoint").is_dir()
    model = (runs / "train-linear/model.safetensors").stat().st_mtime_ns

    got, out, errors = finish(quick(TOY_STEPS=str(STEPS)))
    assert got == 0 and "train linear: as measured before" in errors
    assert (runs / "train-linear/model.safetensors").stat().st_mtime_ns == model
    for kind in ("linear", "softmax"):
        assert steps(runs / f"train-{kind}") == list(range(1, STEPS + 1))
    notes = json.loads((runs / "train-softmax/run.json").read_text())
    result = json.loads((tmp_path / "work/scaling/result.json").read_text())
    assert notes["finished"] and notes["cpu_seconds"] > 0
    assert result["seconds"] >= notes["seconds"] > 0

    got, _, errors = finish(quick(TOY_STEPS=str(STEPS), TOY_VALUE="2"))
    assert got == 0 and "current" in errors  # the environment is no input


@needs_trainer
def test_other_flags_train_again(quick, tmp_path):
    runs = tmp_path / "work/scaling/runs"
    assert finish(quick("--attention", "linear", TOY_STEPS="6"))[0] == 0
    assert finish(quick("--attention", "linear", "--force", TOY_STEPS="8"))[0] == 0
    assert steps(runs / "train-linear") == list(range(1, 9))


@needs_trainer
def test_trainer_that_refuses(quick, text):
    """Its words and its exit code reach the user."""
    (text / "input.txt").write_text("")
    code, out, errors = finish(quick(TOY_STEPS="5"))
    assert code in (1, 2, 3) and out == ""
    assert (
        "scaling: error: train linear: tarn train: error: " in errors and "Traceback" not in errors
    )


def test_closed_output(quick):
    process = quick()
    process.stdout.close()
    assert process.wait(60) == 1
    assert "Traceback" not in process.stderr.read()
    process.stdout = subprocess.DEVNULL


@needs_trainer
def test_calls_of_the_program(settings, text):
    said = run_tarn(settings, ["--version"])
    assert said.startswith("tarn ")
    with pytest.raises(ExperimentError, match="tarn info: tarn info: error: ") as caught:
        tarn_json(settings, ["info", text / "absent"])
    assert caught.value.code == 3
    with pytest.raises(ExperimentError) as caught:
        run_tarn(settings, ["eval", "--nonsense"])
    assert caught.value.code == 2
