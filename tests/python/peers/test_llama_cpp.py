"""llama.cpp as an oracle: random models that its own converter turned into GGUF files, float32,
whose every token's distribution is that of tarn. Skipped where the peers' Python has no
llama-cpp-python (scripts/bench_setup.sh, TARN_PEERS_PYTHON)."""

import importlib
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests" / "python" / "runtime")]
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
runtime = pytest.importorskip("tarn.runtime", exc_type=ImportError)
llama = importlib.import_module("llama_process")
if llama.missing():
    pytest.skip(f"llama.cpp: {llama.missing()}", allow_module_level=True)
programs = importlib.import_module("programs")
published = importlib.import_module("published")
difference = importlib.import_module("published_ways").difference
CASES = importlib.import_module("llama_models").CASES

TOKENS = np.random.default_rng(1).integers(0, published.VOCAB, 200)
MOST_KL = 1e-6  # nats, of any token
NAMES = [case.name for case in CASES]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Name -> (directory, file, error of the converter or None)."""
    folder = tmp_path_factory.mktemp("llama")
    jobs = []
    for case in CASES:
        at = folder / case.name
        at.mkdir()
        case.make(at)
        jobs += [at, "f32", at / "model.gguf"]
    words = [llama.python(), ROOT / "bench" / "peer_llama_files.py", "convert", *jobs]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(CASES), done.stderr
    return {
        case.name: (folder / case.name, folder / case.name / "model.gguf", one["error"])
        for case, one in zip(CASES, found)
    }


@pytest.fixture(scope="module")
def theirs(made):
    """A function: llama.cpp's logits of a case, [tokens, vocabulary], computed once. Each case
    has its own process, because a failed assertion of llama.cpp ends the process."""
    kept = {}

    def logits(name):
        if name not in kept:
            folder, file, error = made[name]
            assert error is None, error
            kept[name] = run_by_llama(file, folder / "logits.npy")
        return kept[name]

    return logits


def run_by_llama(file, out):
    with llama.Process() as server:
        server.ask("open", file=str(file), threads=1)
        server.ask("start", tokens=256, kv="f32")
        server.ask("logits", tokens=TOKENS.tolist(), out=str(out))
    return np.load(out)


def scored(path):
    opened = runtime.Model(path)
    return opened.score(opened.state(), TOKENS)


def opened_file(path):
    """tarn's logits of a GGUF file; skips where this build has no row for it."""
    try:
        return scored(path)
    except Exception as error:
        unread = ("config.json", "general.architecture")
        if any(text in str(error) for text in unread):
            pytest.skip(f"no such GGUF file is read: {error}")
        raise


@pytest.mark.parametrize("name", NAMES)
def test_a_directory_gives_the_distributions_of_llama_cpp(name, made, theirs):
    found = difference(scored(made[name][0]), theirs(name))
    assert found["KL"] < MOST_KL, found


@pytest.mark.parametrize("name", NAMES)
def test_a_file_gives_the_distributions_of_llama_cpp(name, made, theirs):
    wanted = theirs(name)
    found = difference(opened_file(made[name][1]), wanted)
    assert found["KL"] < MOST_KL, found


@pytest.mark.parametrize("name", NAMES)
def test_an_exported_directory_runs_in_llama_cpp(name, made, tmp_path):
    folder, out = made[name][0], tmp_path / "exported.gguf"
    words = ["export", folder, "--to", "gguf", "--type", "f32", "--out", out]
    done = subprocess.run([programs.BUILD / "tarn", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = difference(scored(folder), run_by_llama(out, tmp_path / "logits.npy"))
    assert found["KL"] < MOST_KL, found


def test_another_model_is_told_apart(made, theirs):
    """The bound is no formality: the weights of one layer moved a little fail it."""
    folder = made["llama-grouped"][0]
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        model.model.layers[0].mlp.down_proj.weight.mul_(1.05)
    moved = published.definer_logits(model.eval(), TOKENS)
    assert difference(moved, theirs("llama-grouped"))["KL"] > MOST_KL


if __name__ == "__main__":  # every difference, and transformers' from llama.cpp
    import tempfile

    class Folders:
        def mktemp(self, name):
            return pathlib.Path(tempfile.mkdtemp(prefix=name))

    folders = made.__wrapped__(Folders())
    of = theirs.__wrapped__(folders)
    for name in NAMES:
        row = {"case": name}
        try:
            wanted = of(name)
        except (AssertionError, RuntimeError) as error:
            row["llama.cpp"] = str(error)[:300]
        else:
            row["tarn"] = difference(scored(folders[name][0]), wanted)
            try:
                model = transformers.AutoModelForCausalLM.from_pretrained(
                    folders[name][0], dtype=torch.float32
                ).eval()
                row["transformers"] = difference(published.definer_logits(model, TOKENS), wanted)
            except (ValueError, KeyError) as error:
                row["transformers"] = str(error)[:100]
        print(json.dumps(row), flush=True)
