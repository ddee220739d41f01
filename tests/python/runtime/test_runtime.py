"""tarn.runtime: no torch, the bits of the C++ runtime, errors by kind."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest
from programs import BUILD

runtime = pytest.importorskip("tarn.runtime", exc_type=ImportError)


@pytest.fixture(scope="module", params=["linear", "full"])
def model_dir(request, tmp_path_factory):
    """A small model of random weights, as the install tests make it."""
    folder = tmp_path_factory.mktemp("model") / request.param
    subprocess.run([BUILD / "write_random_model", folder, request.param], check=True)
    return folder


@pytest.fixture
def model(model_dir):
    return runtime.Model(model_dir)


def test_needs_no_torch(model_dir):
    program = (
        "import sys; sys.modules['torch'] = None\n"  # importing it would fail
        "from tarn.runtime import Model\n"
        f"print(Model({str(model_dir)!r}).generate('ab', max_tokens=5))"
    )
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)


def test_any_split_same_bits(model):
    tokens = np.arange(1, 40, dtype=np.int64) % model.vocab_size
    whole, parts, steps = model.state(), model.state(), model.state()
    wanted = model.prefill(whole, tokens)
    model.prefill(parts, tokens[:7])
    given = model.prefill(parts, tokens[7:])
    assert wanted.dtype == np.float32 and wanted.shape == (model.vocab_size,)
    assert np.array_equal(wanted, given) and whole == parts
    assert hash(whole) == hash(parts)
    for token in tokens:
        last = model.step(steps, int(token))
    assert np.array_equal(last, wanted) and steps == whole
    assert whole.position == len(tokens)
    assert np.array_equal(whole.last_logits, wanted)
    rows = model.score(model.state(), tokens)
    assert np.array_equal(rows[-1], wanted) and rows.shape == (39, model.vocab_size)


def test_clone_reset_and_batch(model):
    state = model.state()
    model.prefill(state, [1, 2, 3])
    copy = state.clone()
    model.step(state, 4)
    assert copy.position == 3 and state.position == 4 and copy != state
    logits = model.step_batch([copy, model.state()], [4, 1])
    assert np.array_equal(logits[0], state.last_logits) and copy == state
    with pytest.raises(ValueError, match="state"):
        model.step_batch([copy, copy], [1, 2])
    copy.copy_from(state)
    copy.reset()
    assert copy.position == 0 and copy.last_logits is None and copy == model.state()


def test_a_state_in_a_file_continues(model, model_dir, tmp_path):
    state = model.state()
    model.prefill(state, [1, 2, 3])
    state.save(tmp_path / "state")
    loaded = runtime.Model(model_dir).load_state(tmp_path / "state")
    assert loaded.position == 3 and np.array_equal(loaded.last_logits, state.last_logits)
    again = model.load_state(tmp_path / "state")
    assert again == state and np.array_equal(model.step(again, 4), model.step(state, 4))
    with pytest.raises(runtime.FormatError):  # weights held in another type
        runtime.Model(model_dir, weights="bf16").load_state(tmp_path / "state")
    with pytest.raises(OSError, match="none"):
        model.load_state(tmp_path / "none")
    damaged = bytearray((tmp_path / "state").read_bytes())
    damaged[-9] ^= 1
    (tmp_path / "state").write_bytes(damaged)
    with pytest.raises(runtime.FormatError):
        model.load_state(tmp_path / "state")


def test_a_stream_is_reproducible_and_continues(model):
    first = model.generate("ab", max_tokens=12, seed=5)
    assert first == model.generate("ab", max_tokens=12, seed=5)
    state = model.state()
    pieces = list(model.stream("ab", max_tokens=6, seed=5, state=state))
    pieces += list(model.stream("", max_tokens=6, seed=5, state=state))
    assert state.position == model.encode("ab").__len__() + 12
    assert "".join(pieces)[:3] == first[:3]
    greedy = model.generate("a", max_tokens=4, temperature=0)
    assert greedy == model.generate("a", max_tokens=4, temperature=0, seed=9)


def test_stream_is_draws_and_steps(model):
    """Compares the loop of the runtime with one written out."""
    state, tokens, options = model.state(), [], {"temperature": 1.5, "top_k": 0, "seed": 3}
    logits = model.prefill(state, model.encode("ab"))
    for _ in range(30):
        tokens.append(
            runtime.sample(logits[: model.tokenizer_size], position=state.position, **options)
        )
        logits = model.step(state, tokens[-1])
    streamed = model.state()
    pieces = model.stream("ab", max_tokens=30, state=streamed, **options)
    assert "".join(pieces) == model.decode(tokens) and streamed == state


def test_a_stream_that_was_left_continues_where_it_was(model):
    state, text, at_once = model.state(), "", model.state()
    whole = model.generate("ab", max_tokens=12, seed=5, temperature=0, state=at_once)
    for piece in model.stream("ab", max_tokens=12, seed=5, temperature=0, state=state):
        text += piece
        if len(text) == 5:
            break
    left = 12 - (state.position - len(model.encode("ab")))
    assert 0 < left <= 7 and whole.startswith(text)
    model.generate("", max_tokens=left, seed=5, temperature=0, state=state)
    assert state == at_once


def test_stop_texts_and_tokens(model):
    options = {"max_tokens": 60, "seed": 5, "temperature": 1.5, "top_k": 0}
    plain = model.state()
    whole = model.generate("ab", state=plain, **options)
    stop = re.search("[!-~]{2}", whole[10:])[0]
    want = whole[: whole.index(stop)]
    for texts in (stop, [stop, "never written"], (stop.encode(),)):
        assert model.generate("ab", stop=texts, **options) == want
    state = model.state()
    pieces = list(model.stream("ab", stop=stop, state=state, **options))
    assert "".join(pieces) == want
    # The tokens of the stop text are part of the state, a stop token is not.
    assert state.position < plain.position
    consumed = state.position
    state.reset()
    end = ord(stop[0])
    got = model.generate("ab", stop_tokens=[end], state=state, **options)
    assert got == whole[: whole.index(stop[0])] and state.position < consumed
    assert (
        runtime.sample(state.last_logits, position=state.position, seed=5, temperature=1.5, top_k=0)
        == end
    )
    for wrong, error in (
        ("", ValueError),
        (5, TypeError),
        ([5], TypeError),
        (["a"] * 65, ValueError),
    ):
        with pytest.raises(error):
            model.generate("ab", stop=wrong, **options)
    with pytest.raises(ValueError, match="stop_tokens"):
        model.generate("ab", stop_tokens=[model.vocab_size], **options)


def test_states_as_bytes(model, tmp_path):
    state = model.state()
    model.prefill(state, [1, 2, 3])
    state.save(tmp_path / "state")
    data = state.to_bytes()
    assert data == (tmp_path / "state").read_bytes()
    again = model.state_from_bytes(data)
    assert again == state and np.array_equal(model.step(again, 4), model.step(state, 4))
    assert model.state_from_bytes(memoryview(data)).position == 3
    for bad in (b"", data[:-1], data + b"x", data[:-1] + bytes([data[-1] ^ 1])):
        with pytest.raises(runtime.FormatError, match="state: "):
            model.state_from_bytes(bad)


def test_stream_refuses_before_any_work(model):
    state = model.state()
    for options, name in (({"max_tokens": -1}, "max_tokens"), ({"top_p": 0}, "top_p")):
        with pytest.raises(ValueError, match=name):
            model.generate("ab", state=state, **options)
    with pytest.raises(ValueError, match="prompt token 1"):
        model.generate([1, model.vocab_size], state=state)
    assert state.position == 0


def test_lock_is_released(model):
    """Two threads run the model while the main thread counts."""
    done = []

    def work():
        state = model.state()
        model.prefill(state, np.ones(500, dtype=np.int32))
        done.append(state.position)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == [500, 500]


def test_errors_by_kind(model, model_dir, tmp_path):
    with pytest.raises(OSError, match="config.json"):
        runtime.Model(tmp_path)
    broken = tmp_path / "broken"
    broken.mkdir()
    for name in ("model.safetensors", "tokenizer.json"):
        (broken / name).write_bytes((model_dir / name).read_bytes())
    config = json.loads((model_dir / "config.json").read_text())
    config["model"]["n_layers"] = -1
    (broken / "config.json").write_text(json.dumps(config))
    with pytest.raises(runtime.FormatError, match="n_layers") as error:
        runtime.Model(broken)
    assert isinstance(error.value, ValueError)
    with pytest.raises(ValueError, match="weights"):
        runtime.Model(model_dir, weights="int3")
    state = model.state()
    with pytest.raises(ValueError, match="token"):
        model.prefill(state, [10**6])
    assert state.position == 0
    with pytest.raises(TypeError, match="integers"):
        model.prefill(state, [0.5])
    with pytest.raises(runtime.NumericError):
        runtime.sample(np.array([np.nan, 1.0]))
    with pytest.raises(ValueError, match="top_p"):
        runtime.sample(np.zeros(3), top_p=2.0)


def test_weights_in_groups_are_smaller(model, model_dir, tmp_path):
    logits = {}
    for weights in ("f32", "int8", "int4"):
        for exact in (False, True):
            held = runtime.Model(model_dir, weights=weights, exact=exact)
            assert held.weight_bytes <= model.weight_bytes
            state = held.state()
            logits[weights, exact] = held.prefill(state, [1, 2, 3])
            state.save(tmp_path / "state")
            assert held.load_state(tmp_path / "state") == state
    assert np.array_equal(logits["f32", False], logits["f32", True])
    for weights in ("int8", "int4"):
        assert not np.array_equal(logits[weights, False], logits[weights, True])
        assert not np.array_equal(logits[weights, True], logits["f32", True])


def test_bfloat16_weights_halve_their_bytes(model, model_dir):
    half = runtime.Model(model_dir, weights="bf16")
    assert half.weight_bytes < 0.7 * model.weight_bytes
    wanted = model.prefill(model.state(), [1, 2, 3])
    given = half.prefill(half.state(), [1, 2, 3])
    assert 0 < np.abs(wanted - given).max() < 0.1


def test_keys_and_values_may_be_rounded(model, model_dir, tmp_path):
    if model.state_bytes_per_token == 0:
        with pytest.raises(ValueError, match="cache: want f32, as no layer keeps .* got int8"):
            runtime.Model(model_dir, cache="int8")
        return
    tokens = list(range(1, 40))
    wanted = model.score(model.state(), tokens)
    for cache, parts in (("f32", 1), ("bf16", 2), ("int8", 2.5)):
        rounded = runtime.Model(model_dir, cache=cache)
        assert rounded.cache == cache
        assert parts * rounded.state_bytes_per_token <= model.state_bytes_per_token
        state = rounded.state()
        given = rounded.score(state, tokens)
        assert (cache == "f32") == np.array_equal(given, wanted)
        assert np.abs(given - wanted).max() < 0.1
        state.save(tmp_path / "state")
        assert rounded.load_state(tmp_path / "state") == state
        if cache != "f32":
            with pytest.raises(runtime.FormatError, match=f"cache: want 'f32'.*got '{cache}'"):
                model.load_state(tmp_path / "state")


def test_facts(model):
    assert model.config["vocab_size"] == model.vocab_size
    assert model.parameters > 0 and model.weight_bytes >= 4 * model.parameters
    assert model.state().nbytes == model.state_bytes
    assert model.threads >= 1
    text = "ab"
    assert model.decode(model.encode(text)) == text


@pytest.mark.parametrize(
    "name, value, error",
    [
        ("temperature", "hot", TypeError),
        ("top_k", 1.5, TypeError),
        ("top_p", b"1", TypeError),
        ("min_p", [1.0, 2.0], TypeError),
        ("seed", "1", TypeError),
        ("max_tokens", 2.0, TypeError),
        ("seed", 2**64, ValueError),
        ("top_k", 2**70, ValueError),
        ("max_tokens", -1, ValueError),
    ],
)
def test_an_argument_of_another_type_is_named(model, name, value, error):
    with pytest.raises(error, match=f"^{name}: want .*, got") as raised:
        model.generate("ab", **{name: value})
    assert "invoked with" not in str(raised.value)
    if name != "max_tokens":
        with pytest.raises(error, match=f"^{name}: want"):
            runtime.sample(np.zeros(4, np.float32), **{name: value})


def test_calls_name_their_own_arguments(model, model_dir):
    with pytest.raises(TypeError, match="generate.*max_new_tokens"):
        model.generate("ab", max_new_tokens=5)
    with pytest.raises(TypeError, match="^threads: want a whole number, got 'two'"):
        runtime.Model(model_dir, threads="two")
    with pytest.raises(TypeError, match="^weights: want a word as 'auto' or 'int8', got 16"):
        runtime.Model(model_dir, weights=16)
    with pytest.raises(TypeError, match="^cache: want 'f32', 'bf16' or 'int8', got 16"):
        runtime.Model(model_dir, cache=16)
    with pytest.raises(ValueError, match="cache: want one of 'f32', 'bf16', 'int8', got 'int4'"):
        runtime.Model(model_dir, cache="int4")
    with pytest.raises(ValueError, match="^logits: want one axis"):
        runtime.sample(np.zeros((2, 4), np.float32))
    for call in (lambda: model.step(7, 1), lambda: model.score("s", [1]),
                 lambda: model.step_batch([None], [1]), lambda: model.generate("ab", state=3)):  # fmt: skip
        with pytest.raises(TypeError, match="^state: want a State of this model, got "):
            call()
    # numpy's numbers are numbers.
    text = model.generate("ab", max_tokens=np.int64(4), temperature=np.float32(0))
    assert text == model.generate("ab", max_tokens=4, temperature=0.0)


def test_names_that_are_not_utf8(model_dir, tmp_path):
    base = os.fsencode(tmp_path) + b"/\xff"
    shutil.copytree(model_dir, os.fsdecode(base))
    want = runtime.Model(model_dir).generate("ab", max_tokens=4)
    for path in (base, os.fsdecode(base), pathlib.Path(os.fsdecode(base))):
        model = runtime.Model(path)
        assert model.generate("ab", max_tokens=4) == want
        state = model.state()
        model.prefill(state, [1, 2])
        name = os.path.join(os.fsencode(path), b"s\xe4")
        for form in (name, os.fsdecode(name), pathlib.Path(os.fsdecode(name))):
            state.save(form)
            assert model.load_state(form) == state
    with pytest.raises(OSError, match=r"\\xffabsent/config.json: want a readable file") as error:
        runtime.Model(base + b"absent")
    str(error.value).encode()
    with pytest.raises(ValueError, match="^path: want a name without NUL bytes"):
        runtime.Model(str(model_dir) + "\0")


def test_a_thread_needs_the_stack_that_the_header_names(model_dir):
    """tarn.h promises that 128 KiB are enough; Python's own frames are among them."""
    program = (
        "import sys, threading\n"
        "from tarn.runtime import Model\n"
        "def work():\n"
        "    model = Model(sys.argv[1], threads=2)\n"
        "    print(len(model.generate('ab' * 200, max_tokens=8, temperature=0.5)) > 0)\n"
        "threading.stack_size(128 << 10)\n"
        "thread = threading.Thread(target=work)\n"
        "thread.start(); thread.join()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, model_dir], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and done.stdout == "True\n", done.stderr


def test_vectors_of_texts(model):
    texts = ["one text", b"bytes", [1, 2, 3], "x"]
    for pooling in ("mean", "last"):
        rows = model.embed(texts, pooling=pooling)
        assert rows.shape == (4, model.config["d_model"]) and rows.dtype == np.float32
        assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
        for row, text in zip(rows, texts, strict=True):
            assert np.array_equal(model.embed([text], pooling=pooling)[0], row)
    assert np.array_equal(model.embed(["x"]), model.embed(["x"], pooling="last"))
    assert model.embed([]).shape == (0, model.config["d_model"])
    for texts, pooling, kind in (
        ([[]], "mean", ValueError),
        ([[-1]], "mean", ValueError),
        (["a"], "max", ValueError),
        ("a", "mean", TypeError),
        (["a"], 3, TypeError),
    ):
        with pytest.raises(kind):
            model.embed(texts, pooling=pooling)
