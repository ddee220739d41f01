"""Ctrl-C during a native call of the runtime. Each call below has minutes of work,
so that it ends early or not at all; no verdict depends on how fast it ends."""

import signal
import subprocess

import numpy as np
import pytest
from programs import BUILD

runtime = pytest.importorskip("tarn.runtime", exc_type=ImportError)

COUNT = 1 << 21  # tokens


def model_of(kind, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / kind
    subprocess.run([BUILD / "write_random_model", folder, kind], check=True)
    return runtime.Model(folder, threads=2)


@pytest.fixture(scope="module", params=["linear", "full", "seq2seq", "encoder"])
def model(request, tmp_path_factory):
    return model_of(request.param, tmp_path_factory)


@pytest.fixture
def ctrl_c():
    """SIGINT 50 ms after the call of the fixture, by the handler Python installs."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    yield lambda: signal.setitimer(signal.ITIMER_REAL, 0.05)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def arch(model):
    return model.config["arch"]


def many(model):
    return np.arange(COUNT, dtype=np.int64) % model.vocab_size


def start(model):
    """A state with a past, and the calls that take long."""
    tokens = many(model)
    state = model.encode_source("ab") if arch(model) == "seq2seq" else model.state()
    model.prefill(state, tokens[:5])
    return state, {
        "prefill": lambda: model.prefill(state, tokens),
        "score": lambda: model.score(state, tokens[: COUNT // 4]),
    }


def test_a_long_call_ends_and_the_state_stays(model, ctrl_c):
    if arch(model) == "encoder":
        pytest.skip("has no state")
    state, calls = start(model)
    before = state.clone()
    for name, call in calls.items():
        ctrl_c()
        with pytest.raises(KeyboardInterrupt):
            call()
        assert state == before, name
    assert np.array_equal(model.step(state, 1), model.step(before, 1))


def test_step_batch(model, ctrl_c):
    if arch(model) == "encoder":
        pytest.skip("has no state")
    state, _ = start(model)
    states = [state.clone() for _ in range(40_000 if arch(model) == "decoder" else 4_000)]
    tokens = np.ones(len(states), dtype=np.int64)
    # Steps go on until one of them is interrupted.
    ctrl_c()
    with pytest.raises(KeyboardInterrupt):
        while True:
            model.step_batch(states, tokens)
    assert len({s.position for s in states}) == 1


def test_reading_a_sequence(model, ctrl_c):
    words = "ab" * (COUNT // 8)
    if arch(model) == "encoder":
        call, again = (lambda: model.classify([words] * 8)), (lambda: model.classify(["ab"]))
    elif arch(model) == "seq2seq":
        call, again = (lambda: model.encode_source(words)), (lambda: model.encode_source("ab"))
    else:
        pytest.skip("reads no whole sequence")
    ctrl_c()
    with pytest.raises(KeyboardInterrupt):
        call()
    assert again() is not None
