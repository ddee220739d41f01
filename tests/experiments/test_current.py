"""When something is measured, and when what was measured serves again."""

import dataclasses
import os
import shutil
import subprocess
import time

import pytest
import toy

from experiments.core import command, digest, machine, measure, places, result
from experiments.core.files import read_json, rounded, write_json
from experiments.core.points import file_name
from experiments.core.progress import Progress
from experiments.core.runner import run_all
from experiments.core.types import ExperimentError

CODE = '''"""About."""
import os
LIMIT = 3
def run(x):
    """Runs."""
    return x + LIMIT  # why
def page(result):
    return "text"
'''


@pytest.mark.parametrize(
    "old, new, same",
    [
        ('"""About."""', '"""Other words."""', True),
        ("  # why", "", True),
        ('"""Runs."""', '"""Runs it."""', True),
        ('return "text"', 'return "another text"', True),
        ("LIMIT = 3", "LIMIT = 4", False),
        ("x + LIMIT", "x - LIMIT", False),
        ("import os", "import sys", False),
    ],
)
def test_digest_of_code(old, new, same):
    assert old in CODE
    assert (digest.of_python(CODE) == digest.of_python(CODE.replace(old, new))) == same


CPP = """// About.
#define LIMIT 3
/* Two
   lines. */
const char* kLink = "http://x";  // where
const char* kRaw = R"(a "// b)";
int Run(int x) { return x + LIMIT; }
"""


@pytest.mark.parametrize(
    "old, new, same",
    [
        ("// About.", "// Other words,\n// on two lines.", True),
        ("   lines. */", "   lines.\n   Three. */", True),
        ("  // where", "", True),
        ("http://x", "http://y", False),
        ("// b", "// c", False),
        ("LIMIT 3", "LIMIT 4", False),
        ("3\n/* Two\n   lines. */\n", "3 ", False),  # a line of the preprocessor ends where it ends
    ],
)
def test_digest_of_cpp(old, new, same):
    assert old in CPP
    assert (digest.of_cpp(CPP) == digest.of_cpp(CPP.replace(old, new))) == same


def test_digest_of_folders(tmp_path):
    (tmp_path / "src" / "a").mkdir(parents=True)
    source = tmp_path / "src" / "a" / "x.cc"

    def now():
        digest.of_sources.cache_clear()
        return digest.of_sources(("src/a",), tmp_path)

    source.write_text("int x;")
    first = now()
    (tmp_path / "src" / "a" / "x_test.cc").write_text("int y;")
    assert now() == first  # tests decide no figure
    source.write_text("int x = 1;")
    assert now() != first
    second = now()
    source.rename(source.with_name("y.cc"))
    assert now() not in (first, second)
    digest.of_sources.cache_clear()


def test_what_drives_the_runs_counts(settings, monkeypatch):
    run_all([settings], quiet=True)
    monkeypatch.setattr(digest, "DRIVING", (*digest.DRIVING, "experiments/core/places.py"))
    assert result.stale(settings) == "sources changed"


def test_commit_tells_of_changes(tmp_path, monkeypatch):
    def git(*words):
        subprocess.run(
            ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x@y", *words],
            check=True,
            capture_output=True,
        )

    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.cc").write_text("int a;")
    (tmp_path / ".gitignore").write_text("*.o\n")
    git("init")
    git("add", "-A")
    git("commit", "-m", "one")
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    clean = machine.commit()
    assert len(clean) == 10 and clean.isalnum()
    for name, dirty in (("notes.txt", False), ("src/a.o", False), ("src/b.cc", True)):
        (tmp_path / name).write_text("x")
        assert machine.commit() == clean + ("+" if dirty else ""), name
    (tmp_path / "src" / "b.cc").unlink()
    (tmp_path / "src" / "a.cc").write_text("int b;")
    assert machine.commit() == clean + "+"


NINJA = """rule touch
  command = touch $out
build tarn: touch a.cc
build tarn-train: touch a.cc
build tarn_pytorch: touch a.cc
build other: touch b.cc
"""


@pytest.mark.skipif(shutil.which("ninja") is None, reason="asks ninja")
def test_programs_older_than_their_sources(tmp_path):
    assert places.out_of_date(tmp_path) == ""  # nothing is built there
    (tmp_path / "build.ninja").write_text(NINJA)
    (tmp_path / "a.cc").write_text("1")
    (tmp_path / "b.cc").write_text("1")
    assert "touch" in places.out_of_date(tmp_path)
    subprocess.run(["ninja", "-C", str(tmp_path)], check=True, capture_output=True)
    assert places.out_of_date(tmp_path) == ""
    later = time.time() + 5
    os.utime(tmp_path / "b.cc", (later, later))
    assert places.out_of_date(tmp_path) == ""  # no program of the experiments
    os.utime(tmp_path / "a.cc", (later, later))
    assert "touch" in places.out_of_date(tmp_path)


def test_old_programs_are_not_measured(monkeypatch, capsys):
    monkeypatch.setattr(places, "out_of_date", lambda build: "[1/1] Linking tarn")
    assert command.main(["scaling", "--size", "quick"]) == 1
    assert "make build" in capsys.readouterr().err and toy.CALLS == []


def test_a_point_is_measured_once(settings, progress):
    calls = []
    take = lambda inputs, with_settings=settings: measure(
        with_settings, progress, "a point", inputs, lambda: calls.append(1) or {"n": len(calls)}
    )
    assert take({"seq_len": 512}) == take({"seq_len": 512}) == {"n": 1}
    assert take({"seq_len": 513}) == {"n": 2}
    assert take({"seq_len": 513}, dataclasses.replace(settings, seed=1)) == {"n": 3}
    assert take({"seq_len": 513}, dataclasses.replace(settings, threads=2)) == {"n": 4}
    again = dataclasses.replace(settings, threads=2, force=True)
    assert take({"seq_len": 513}, again) == {"n": 5}
    path = settings.out / "points" / "a-point.json"
    path.write_text(path.read_text()[:-20])  # a broken one is measured again
    assert take({"seq_len": 513}, dataclasses.replace(settings, threads=2)) == {"n": 6}


def test_a_point_depends_on_the_data(settings, progress, text):
    calls = []
    take = lambda: measure(settings, progress, "p", {}, lambda: calls.append(1) or {"n": 0})
    take()
    (text / "input.txt").write_text("other")
    take()
    assert len(calls) == 2


def test_a_failed_point_leaves_nothing(settings, progress):
    def fail():
        raise ValueError("no")

    with pytest.raises(ValueError):
        measure(settings, progress, "p", {}, fail)
    assert not (settings.out / "points").exists()


@pytest.mark.parametrize(
    "part, name",
    [("N = 512, linear", "n-512-linear"), ("../x", "..-x"), ("/", "part"), ("a_b", "a-b")],
)
def test_part_names_stay_in_the_folder(part, name):
    assert file_name(part) == name


def test_unchanged_is_skipped(settings, text, capsys):
    assert run_all([settings]) == ["scaling"]
    assert run_all([settings]) == []
    assert toy.CALLS == [1]
    captured = capsys.readouterr()
    assert "holds: linear loss" in captured.out and "not measured: speed" in captured.out
    assert "current, nothing to do" in captured.err


def test_changed_inputs_are_measured_again(settings, text):
    run_all([settings], quiet=True)
    for changed, word in (
        (dataclasses.replace(settings, seed=3), "settings"),
        (dataclasses.replace(settings, attention=("linear",)), "settings"),
    ):
        assert result.stale(changed) == f"{word} changed"
    (text / "input.txt").write_text("another text, long enough")
    assert result.stale(settings) == "data changed"
    assert run_all([settings], quiet=True) == ["scaling"]
    assert len(toy.CALLS) == 2 and result.stale(settings) == ""


def test_changed_sources_are_measured_again(settings, tmp_path):
    source = tmp_path / "measure.py"
    source.write_text(CODE)
    experiment = dataclasses.replace(toy.EXPERIMENT, sources=(str(source),))
    settings = dataclasses.replace(settings, experiment=experiment)
    run_all([settings], quiet=True)
    source.write_text(CODE.replace("LIMIT = 3", "LIMIT = 4"))
    digest.of_sources.cache_clear()
    assert result.stale(settings) == "sources changed"
    source.write_text("# new\n" + CODE)
    digest.of_sources.cache_clear()
    assert result.stale(settings) == ""


def test_result_says_where_from(settings):
    run_all([settings], quiet=True)
    stored = result.read(result.path_of(settings))
    assert stored["command"] == "tarn experiment scaling --size quick"
    assert stored["seeds"] == [0, 7] and stored["size"] == "quick"
    assert len(stored["inputs"]["data"][0]["files"][0]["sha256"]) == 64
    assert stored["commit"] and stored["machine"]["cores"] >= 1
    assert stored["measured"]["point"] == {"value": 0.333333, "calls": 1}
    assert str(settings.out.parent) not in result.path_of(settings).read_text()


def test_time_of_reused_parts_counts(settings):
    slow = lambda progress: measure(settings, progress, "p", {}, lambda: {"n": sum(range(10**6))})
    slow(Progress("scaling", quiet=True))
    kept = read_json(settings.out / "points" / "p.json")["seconds"]
    progress = Progress("scaling", quiet=True)
    slow(progress)
    assert progress.reused_s == kept > 0


def test_json_is_strict_and_rounded(tmp_path):
    value = {
        "a": 1 / 3,
        "b": [float("nan"), float("inf"), 2],
        "c": [[1, 0.1234567], [2, 3]],
        "d": [{"x": 1, "y": []}, {"x": 2}],
        "e": {},
        "f": "text",
        "g": None,
    }
    write_json(tmp_path / "a.json", value)
    assert (
        read_json(tmp_path / "a.json")
        == rounded(value)
        == {
            "a": 0.333333,
            "b": [None, None, 2],
            "c": [[1, 0.123457], [2, 3]],
            "d": [{"x": 1, "y": []}, {"x": 2}],
            "e": {},
            "f": "text",
            "g": None,
        }
    )
    assert [one.name for one in tmp_path.iterdir()] == ["a.json"]
    (tmp_path / "b.json").write_text('{"a": NaN}')
    with pytest.raises(ExperimentError):
        read_json(tmp_path / "b.json")


def _others(monkeypatch, settings, **changes):
    """The toy under two names; the first is changed."""
    first = dataclasses.replace(toy.EXPERIMENT, name="copy", **changes)
    return [
        dataclasses.replace(settings, experiment=first, out=settings.out.parent / "copy"),
        settings,
    ]


def test_missing_data_of_one_keep_no_other_from_running(settings, monkeypatch, capsys, tmp_path):
    wanted = _others(monkeypatch, settings, data=("fsdd",))
    wanted[0] = dataclasses.replace(wanted[0], data_paths={"fsdd": tmp_path / "absent"})
    with pytest.raises(ExperimentError, match="not finished: copy") as caught:
        run_all(wanted, quiet=True)
    assert caught.value.code == 3 and "absent: not there" in capsys.readouterr().err
    assert result.stale(settings) == ""


@pytest.mark.parametrize(
    "error, code",
    [
        (ExperimentError("bad", 3), 3),
        (ValueError("bug"), 1),
        (OSError(28, "No space left on device"), 1),
    ],
)
def test_failure_of_one_keeps_no_other_from_running(settings, monkeypatch, capsys, error, code):
    def fail(settings, progress):
        raise error

    wanted = _others(monkeypatch, settings, run=fail)
    with pytest.raises(ExperimentError, match="not finished: copy") as caught:
        run_all(wanted, quiet=True)
    assert caught.value.code == code and result.stale(settings) == ""
    said = capsys.readouterr().err
    assert "copy: error: " in said and ("Traceback" in said) == isinstance(error, ValueError)


def test_optional_and_undeclared_data(settings, text, monkeypatch, tmp_path):
    monkeypatch.setenv("TARN_DATA", str(tmp_path / "nothing"))
    experiment = dataclasses.replace(toy.EXPERIMENT, data=("text-shakespeare", "?cifar10"))
    plain = dataclasses.replace(settings, experiment=experiment)
    more = dataclasses.replace(plain, data_paths={**settings.data_paths, "cifar10": text})
    assert not plain.has("cifar10") and more.has("cifar10")
    assert [one["name"] for one in plain.inputs()["data"]] == ["text-shakespeare"]
    assert [one["name"] for one in more.inputs()["data"]] == ["text-shakespeare", "cifar10"]
    assert more.command().endswith("--data cifar10=PATH") and more.data("cifar10") == text
    with pytest.raises(ValueError, match="got 'mnist'"):
        settings.data("mnist")


def test_an_optional_set_is_found_by_itself(settings, text, monkeypatch, tmp_path):
    """Where sets are; the command that repeats the run needs no name for it."""
    folder = tmp_path / "sets" / "cifar10"
    folder.mkdir(parents=True)
    (folder / "data_batch_1.bin").write_bytes(b"x")
    monkeypatch.setenv("TARN_DATA", str(tmp_path / "sets"))
    experiment = dataclasses.replace(toy.EXPERIMENT, data=("text-shakespeare", "?cifar10"))
    found = dataclasses.replace(settings, experiment=experiment)
    assert found.has("cifar10") and "--data" not in found.command()
    assert [one["name"] for one in found.inputs()["data"]] == ["text-shakespeare", "cifar10"]
