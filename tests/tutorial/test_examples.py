"""The programs of examples/ as a user starts them, and the commands of its README."""

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys

import pytest
import torch
from conftest import BUILD, ROOT

import tarn

EXAMPLES = ROOT / "examples"
README = (EXAMPLES / "README.md").read_text(encoding="utf-8")
PROMPT = "to be or"


def run(folder, *command, code=0):
    done = subprocess.run(
        [str(one) for one in command],
        cwd=folder,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=600,
    )
    assert done.returncode == code, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout if code == 0 else done.stderr


def example(folder, name, *arguments, code=0):
    return run(folder, sys.executable, EXAMPLES / name, *arguments, code=code)


def module(name):
    """An example as a module, for tests that need no fresh process."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def write_model(folder, seed):
    """A random language model over letters, so that everything it writes is text."""
    letters = "\n abcdefghijklmnopqrstuvwxyz"
    folder.mkdir(parents=True)
    points = {"format_version": 1, "type": "char", "code_points": sorted(map(ord, letters))}
    (folder / "tokenizer.json").write_text(json.dumps(points))
    torch.manual_seed(seed)
    model = tarn.models.LanguageModel(
        vocab_size=len(letters), d_model=16, n_layers=2, n_heads=2, tokenizer="char"
    )
    tarn.save_model(model, folder, tokenizer=folder / "tokenizer.json")
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("random") / "model", seed=3)


@pytest.fixture(scope="module")
def fork_program(tmp_path_factory):
    """fork_state.cc, compiled as its first lines say."""
    out = tmp_path_factory.mktemp("program") / "fork_state"
    run(
        ROOT,
        os.environ.get("CXX", "g++"),
        "-std=c++20",
        "-Wall",
        "-Wextra",
        "-Werror",
        EXAMPLES / "fork_state.cc",
        f"-I{ROOT / 'include'}",
        f"-L{BUILD}",
        "-ltarn",
        f"-Wl,-rpath,{BUILD}",
        "-o",
        out,
    )
    return out


def test_copy_task(tmp_path):
    told = example(tmp_path, "copy_task.py")
    read, wrote, right = told.splitlines()
    assert wrote.split()[1:] == read.split()[1:]
    assert float(re.search(r"right: ([\d.]+)% of 1200 symbols", right).group(1)) > 99


def test_copy_task_untrained_is_wrong(capsys):
    """The figure measures the model: nothing is copied for it."""
    module("copy_task").main(5, 1)
    told = capsys.readouterr().out
    assert float(re.search(r"right: ([\d.]+)% of 500 symbols", told).group(1)) < 50


def test_tiny_qwen(tmp_path):
    """Both sides learn, and learn the same: the kernels change no loss."""
    pytest.importorskip("transformers")
    text = tmp_path / "text"
    text.write_bytes(b"To be, or not to be, that is the question. " * 100)
    told = example(tmp_path, "tiny_qwen.py", 3, text)
    theirs, ours, quotient = told.splitlines()
    figures = [
        re.search(r"([\d.]+) s an update, loss ([\d.]+) to ([\d.]+)", line).groups()
        for line in (theirs, ours)
    ]
    assert theirs.startswith("transformers ") and ours.startswith("tarn ")
    losses = [[float(one) for one in row[1:]] for row in figures]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3) and losses[0][1] < losses[0][0] - 0.5
    assert re.fullmatch(r"[\d.]+ times as fast", quotient)


def test_forks_are_what_the_whole_prompt_gives(tmp_path, model, fork_program):
    told = example(tmp_path, "fork_state.py", model, PROMPT, 3, 40)
    first, *forks, last = told.splitlines(keepends=True)
    bytes_of_state = 4 * 2 * 2 * (8 * 8 + 8)  # float32, layers, heads, S and z
    assert first == f"{len(PROMPT)} tokens read, {bytes_of_state} bytes of state\n"
    assert last == f"the state is where it was: {len(PROMPT)} tokens read\n"
    texts = [
        run(
            tmp_path,
            BUILD / "tarn",
            "generate",
            model,
            "--prompt",
            PROMPT,
            "--seed",
            seed,
            "--max-tokens",
            40,
        )
        for seed in range(3)
    ]
    assert len(set(texts)) == 3
    whole = "".join(
        f"{seed}: {PROMPT}{text.removesuffix(chr(10))}\n" for seed, text in enumerate(texts)
    )
    assert "".join(forks) == whole
    assert run(tmp_path, fork_program, model, PROMPT, 3, 40) == told


def test_fork_state_says_how(tmp_path, fork_program):
    assert "Usage" in example(tmp_path, "fork_state.py", code=1)
    assert "usage" in run(tmp_path, fork_program, code=2)
    assert "nowhere" in run(tmp_path, fork_program, "nowhere", code=1)


def test_classifier_of_the_example(tmp_path):
    told = example(tmp_path, "classify_csv.py")
    assert "128 rows to learn from, 32 held out, 4 labels\n" in told
    assert int(re.search(r"held out: (\d+)% right, by chance 25%", told).group(1)) >= 75
    out = tmp_path / "models" / "messages"
    assert json.loads((out / "labels.json").read_text()) == ["food", "sport", "travel", "weather"]
    (tmp_path / "texts").write_text("Snow is expected tonight.\nThe captain lost the final.\n")
    assert run(tmp_path, BUILD / "tarn", "classify", out, "texts") == "weather\nsport\n"


WRONG = {
    "columns": ("kind,words\na,b\n", "want the columns label and text, got ['kind', 'words']"),
    "nothing": ("", "want the columns label and text, got None"),
    "one label": ("label,text\na,b\na,c\n", "want rows of two labels or more"),
    "no text": ("label,text\na,b\nb,\n", "table.csv:3: want a label and a text"),
    "a short row": ("label,text\na,b\nb\n", "table.csv:3: want a label and a text"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_tables_are_named(tmp_path, kind):
    text, message = WRONG[kind]
    (tmp_path / "table.csv").write_text(text)
    with pytest.raises(SystemExit) as caught:
        module("classify_csv").main(tmp_path / "table.csv", tmp_path / "out")
    assert message in str(caught.value) and not (tmp_path / "out").exists()


def test_a_custom_table(tmp_path, capsys):
    """It has quotes, commas, newlines and more than ASCII inside a text, one more column
    and a byte order mark."""
    rows = [f'{i},"zwölf, {i}\nund ""mehr""",{"ab"[i % 2]}' for i in range(10)]
    (tmp_path / "table.csv").write_text(
        "\ufeffid,text,label\n" + "\n".join(rows) + "\n", encoding="utf-8"
    )
    classify_csv = module("classify_csv")
    assert ("b", 'zwölf, 1\nund "mehr"') in classify_csv.read(tmp_path / "table.csv")
    classify_csv.main(tmp_path / "table.csv", tmp_path / "out", epochs=1)
    assert "8 rows to learn from, 2 held out, 2 labels\n" in capsys.readouterr().out
    assert json.loads((tmp_path / "out" / "labels.json").read_text()) == ["a", "b"]


@pytest.mark.parametrize(
    "name, start", [("tarn.service", "ExecStart="), ("Containerfile", "ENTRYPOINT ")]
)
def test_the_server_has_the_options_that_it_is_started_with(name, start):
    told = run(ROOT, BUILD / "tarn", "serve", "--help")
    text = (EXAMPLES / "serve" / name).read_text(encoding="utf-8")
    (line,) = (one for one in text.splitlines() if one.startswith(start))
    words = line.removeprefix(start)
    words = json.loads(words) if words.startswith("[") else shlex.split(words)
    options = [one for one in words if one.startswith("--")]
    assert "serve" in words and len(options) >= 2
    for one in options:
        assert re.search(rf"^  {one}\b", told, re.MULTILINE), one


def test_readme_names_all_and_its_commands_run(clone):
    for one in EXAMPLES.iterdir():
        assert one.name in {"README.md", "__pycache__"} or any(
            f"({one.name}{end}" in README for end in ")/"
        ), one.name
    write_model(clone.folder / "models" / "demo", seed=4)
    commands = re.search(r"```sh\n(.*?)```", README, re.DOTALL).group(1).splitlines()
    told = {}
    for line in commands:
        if not re.match(
            r"\.venv/bin/python examples/(c|tiny)", line
        ):  # these have tests of their own
            line = line.replace('"The "', '"the "').replace(
                ".venv/bin/python", shlex.quote(sys.executable)
            )
            told[line] = clone.shell(line)
        elif "classify_csv" in line:
            tarn.save_model(
                tarn.models.Classifier(n_classes=2, d_model=16, n_layers=1, n_heads=2),
                clone.folder / "models" / "messages",
                labels=["food", "weather"],
            )
    forks = [one for line, one in told.items() if "fork_state" in line and "g++" not in line]
    assert len(forks) == 2 and forks[0] == forks[1] and forks[0].count("\n") >= 5
    assert set(told[next(line for line in told if "classify" in line)].split()) <= {
        "food",
        "weather",
    }
