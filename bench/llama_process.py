"""llama.cpp as another process: bench/peer_llama_cpp.py and its answers. Loads nothing of
tarn's, so that tests may use it as well.

TARN_PEERS_PYTHON names the Python that has llama-cpp-python, otherwise that of .venv-peers.
"""

import functools
import json
import os
import pathlib
import subprocess

HERE = pathlib.Path(__file__).resolve().parent


def python():
    """The peers' Python, which may be missing."""
    named = os.environ.get("TARN_PEERS_PYTHON")
    return pathlib.Path(named) if named else HERE.parent / ".venv-peers" / "bin" / "python"


@functools.lru_cache(maxsize=1)
def missing():
    """Why llama.cpp cannot run here, or an empty text."""
    if not python().is_file():
        return f"no {python()} (scripts/bench_setup.sh makes it)"
    done = subprocess.run([python(), "-c", "import llama_cpp"], capture_output=True, text=True)
    if done.returncode:
        return f"{python()} has no llama_cpp: {done.stderr.strip().splitlines()[-1:]}"
    return ""


def without_amx():
    """The folder of the second build of the library, None on machines without AMX."""
    folder = python().parents[1] / "llama.cpp" / "no-amx"
    return folder if folder.is_dir() else None


def environment(library=None):
    """Of a program that loads llama.cpp, from a folder other than the package's if named."""
    named = {} if library is None else {"LLAMA_CPP_LIB_PATH": str(library)}
    return os.environ | named


def program(name, *words, library=None):
    """What a program of this folder prints under the peers' Python. RuntimeError with its
    last lines where it fails."""
    done = subprocess.run(
        [str(python()), str(HERE / name), *map(str, words)],
        env=environment(library),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"{name}: {(done.stderr or done.stdout)[-2000:]}")
    return done.stdout


def opened(file, threads, library=None):
    """Seconds and memory from nothing to the first logits, in a fresh process."""
    text = program("peer_llama_cpp.py", "open", file, threads, library=library)
    return json.loads(text.splitlines()[-1])


class Process:
    """A running server; ask() raises RuntimeError with the text of an error."""

    def __init__(self, library=None):
        self._process = subprocess.Popen(
            [str(python()), str(HERE / "peer_llama_cpp.py"), "serve"],
            env=environment(library),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, do, **words):
        print(json.dumps({"do": do} | words), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"llama.cpp: {do}: the process ended: {self._process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"llama.cpp: {answer['error']}")
        return answer

    def close(self):
        self._process.stdin.close()
        self._process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
