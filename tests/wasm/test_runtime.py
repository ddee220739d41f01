"""The WebAssembly runtime under node against the native one: text, logits, sessions and
errors. Skipped where `make wasm` has not been run."""

import ctypes
import json
import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARN = pathlib.Path(os.environ.get("TARN_PROGRAM", ROOT / "build/tarn"))
WASM = pathlib.Path(os.environ.get("TARN_WASM", ROOT / "build-wasm"))
MODEL = ROOT / "examples/fortunes"

if not (WASM / "tarn_runtime.wasm").exists():
    pytest.skip(f"{WASM} has no runtime: make wasm", allow_module_level=True)
if shutil.which("node") is None:
    pytest.skip("no node to run it", allow_module_level=True)

PROMPTS = ["The ", "A computer is like", "Caf\u00e9 \u2014 ", "\n"]


def under_node(prompt, tokens, sampler, model=MODEL, **options):
    facts = {"prompt": prompt, "maxTokens": tokens, "sampler": sampler, "options": options}
    job = json.dumps(facts)
    command = ["node", ROOT / "tests/wasm/run.js", WASM, model, job]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def native(prompt, tokens, target, *words, model=MODEL):
    command = [TARN, "generate", model, "--prompt", prompt, "--max-tokens", str(tokens), *words]
    environment = dict(os.environ, TARN_FORCE_TARGET=target)
    done = subprocess.run(command, capture_output=True, timeout=600, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def targets():
    """SIMD targets that the native build has here, by its message for a wrong one."""
    done = subprocess.run([TARN, "generate", MODEL], capture_output=True, text=True,
                          env=dict(os.environ, TARN_FORCE_TARGET="none"))  # fmt: skip
    return done.stderr.split("one of ")[1].split(" got")[0].strip(" ,").split(", ")


# Vectors as wide as WebAssembly's and no fused multiply-adds: the same bits. Targets that
# fuse round differently, and texts of them part where two tokens are nearly as likely.
SAME = "SSE4"


@pytest.mark.skipif(SAME not in targets(), reason=f"no {SAME} here")
@pytest.mark.parametrize("sampler", [{"temperature": 0, "seed": 1}, {"seed": 7}])
@pytest.mark.parametrize("prompt", PROMPTS)
def test_text_and_session_are_the_native_ones_bit_for_bit(tmp_path, prompt, sampler):
    """The file has tokens, states and logits."""
    found = under_node(prompt, 300, sampler)
    words = [word for key, value in sampler.items() for word in (f"--{key}", str(value))]
    file = tmp_path / "native.session"
    text = native(prompt, 300, SAME, *words, "--save", file)
    assert len(text) >= 300
    assert text.removesuffix(b"\n") == bytes.fromhex(found["text"]).removesuffix(b"\n")
    assert file.read_bytes() == bytes.fromhex(found["session"])
    assert found["restored"]


def native_logits(tokens):
    """After the tokens, by libtarn on this machine's best target."""
    library = ctypes.CDLL(str(TARN.parent / "libtarn.so"))
    pointer, word = ctypes.c_void_p(), ctypes.c_uint64
    options = (ctypes.c_int32 * 7)(28, 0, -1, 1, 1, 1, 0)  # exact: float32 products
    assert library.tarn_model_open(os.fsencode(MODEL), options, ctypes.byref(pointer), None) == 0
    state = ctypes.c_void_p()
    assert library.tarn_state_new(pointer, ctypes.byref(state), None) == 0
    logits = (ctypes.c_float * 256)()
    row = (ctypes.c_int32 * len(tokens))(*tokens)
    assert library.tarn_prefill(pointer, state, row, word(len(tokens)), logits, None) == 0
    return list(logits)


@pytest.mark.skipif(not (TARN.parent / "libtarn.so").exists(), reason="libtarn.so is not built")
def test_logits_of_float32_products_are_close_on_any_target():
    """With 8 bits a step of rounding may fall on either side."""
    found = under_node("The quick brown fox", 8, {"temperature": 0}, exact=1)
    wanted = native_logits(found["tokens"])
    assert len(found["logits"]) == len(wanted)
    largest = max(map(abs, wanted))
    assert max(abs(a - b) for a, b in zip(found["logits"], wanted)) < 1e-5 * largest


def test_forks_and_rollbacks_are_exact():
    found = under_node("The ", 100, {"temperature": 0.8, "seed": 3})
    assert found["text"] == found["fork"] == found["again"]
    assert found["position"] == len(found["tokens"])
    assert bytes.fromhex(found["read"]) == b"The " + bytes.fromhex(found["text"])
    assert len(set(found["stateBytes"])) == 1


def test_errors_are_those_of_the_interface():
    errors = under_node("The ", 1, {})["errors"]
    assert all(error and error[0] for error in errors), errors
    argument, file_format = 1, 5
    assert [error[1] for error in errors] == [argument, argument, argument, file_format, argument]
    assert "config.json" in errors[3][2]


def test_the_playground_is_one_file_that_asks_for_nothing():
    html = (WASM / "playground/index.html").read_text()
    assert "default-src 'none'" in html
    outside = html.split('<script type="text/plain"')[0] + html.split("</main>")[1][:200]
    assert "http:" not in outside and "https:" not in outside and "src=" not in outside
