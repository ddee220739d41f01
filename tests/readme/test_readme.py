"""Runs README.md: every sh, python and cpp block, in order, in one folder that
looks like a clone (links to the tree, a separate output folder). `make demo`
is cut to 30 steps and so are other trainings; `make build`, `make runtime` and
`make test`, of which this is a part, and `make paper` (the test paper-quick) are left out."""

import os
import pathlib
import re
import subprocess

import pytest
from checkout_copy import checkout_copy
from downloaded import write_download

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("TARN_BUILD", ROOT / "build"))
PYTHON = os.environ.get("TARN_PYTHON", str(ROOT / ".venv/bin/python"))
BLOCK = re.compile(r"(?:<!-- file: (\S+) -->\n)?```(\w+)\n(.*?)```", re.DOTALL)


def blocks():
    found = BLOCK.findall((ROOT / "README.md").read_text())
    assert {"sh", "python", "cpp"} <= {language for _, language, _ in found}
    return [pytest.param(*block, id=f"{i}-{block[1]}") for i, block in enumerate(found)]


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    folder = checkout_copy(tmp_path_factory.mktemp("clone"), ROOT, BUILD)
    text = "It was the best of times, it was the worst of times.\n"
    (folder / "book.txt").write_text("".join(f"{i} {text}" for i in range(2000)))
    write_download(folder / "downloads" / "qwen3")
    return folder


def shorten(command):
    if re.search(r"\bmake demo\b", command):
        return re.sub(r" STEPS=\d+", "", command) + " STEPS=30"
    command = re.sub(r"(tarn experiment (?!list))", r"\1--size quick ", command)
    return re.sub(r"--steps \d+", "--steps 30", command)


class Served:
    """A server of the README on a free port, until the end of its block."""

    def __init__(self, command, folder):
        self.process = subprocess.Popen(
            ["bash", "-c", f"exec {command} --port 0"],
            cwd=folder,
            stderr=subprocess.PIPE,
            text=True,
        )
        for line in self.process.stderr:
            if line.startswith("listens"):
                self.port = line.rsplit(":", 1)[1].strip()
                return
        raise RuntimeError(f"{command}: it does not listen")

    def end(self):
        self.process.terminate()
        self.process.stderr.read()
        assert self.process.wait() == 0


def run(command, folder):
    environment = dict(os.environ, TARN_PYTHON=PYTHON)
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=2400,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done


@pytest.mark.parametrize("name,language,text", blocks())
def test_block(clone, name, language, text):
    if name:
        (clone / name).write_text(text)
    if language == "sh":
        served = None
        for line in text.strip().splitlines():
            if line.startswith("build/tarn serve"):
                served = Served(line, clone)
                continue
            if served:
                line = line.replace("localhost:8080", f"localhost:{served.port}")
            if line in ("make build", "make runtime", "make wheel", "make test", "make paper"):
                continue
            done = run(["bash", "-c", shorten(line)], clone)
            if line.startswith("build/tarn import"):
                assert (clone / line.split()[-1] / "model.safetensors").exists()
            if " generate " in line or line.startswith("make demo"):
                assert done.stdout.strip(), f"{line}: no text on stdout"
            if line.startswith("curl"):
                assert '"finish_reason"' in done.stdout, done.stdout
        if served:
            served.end()
    elif language == "python":
        environment = f"PYTHONPATH={ROOT / 'python'} TARN_LIBRARY={BUILD / 'libtarn_pytorch.so'}"
        (clone / "snippet.py").write_text(text)
        run(["bash", "-c", f"{environment} {PYTHON} snippet.py"], clone)
    elif language != "text":
        assert name and language == "cpp", f"a {language} block without a file name"
