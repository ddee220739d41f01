"""tarn.runtime with sequence-to-sequence models and classifiers: no torch, the
program's answers, searches against a plain loop."""

import json
import subprocess
import threading

import numpy as np
import pytest
from programs import BUILD

runtime = pytest.importorskip("tarn.runtime", exc_type=ImportError)

NEWLINE = ord("\n")


def opened(kind, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / kind
    subprocess.run([BUILD / "write_random_model", folder, kind], check=True)
    return folder


@pytest.fixture(scope="module")
def pairs_dir(tmp_path_factory):
    return opened("seq2seq", tmp_path_factory)


@pytest.fixture(scope="module")
def classes_dir(tmp_path_factory):
    return opened("encoder", tmp_path_factory)


@pytest.fixture
def pairs(pairs_dir):
    return runtime.Model(pairs_dir)


@pytest.fixture
def classes(classes_dir):
    return runtime.Model(classes_dir)


def ask(*command):
    done = subprocess.run([BUILD / "tarn", *command], check=True, capture_output=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def log_softmax(row):
    row = row.astype(np.float64)
    return row - row.max() - np.log(np.exp(row - row.max()).sum())


def test_source_is_read_once_and_shared(pairs, tmp_path):
    state = pairs.encode_source("a source")
    assert state.position == 0 and state.source_len == 8
    assert pairs.memory_bytes_per_token == 0 and state.memory_bytes == pairs.memory_bytes > 0
    copy = state.clone()
    pairs.step(copy, NEWLINE)
    assert state.position == 0 and copy.position == 1 and copy != state
    assert pairs.encode_source(list(b"a source")) == state
    assert pairs.encode_source(b"another1") != state
    assert pairs.encode_source("").source_len == 0
    state.save(tmp_path / "state")
    assert pairs.load_state(tmp_path / "state") == state
    # Any split of a target gives the same bits, as for language models.
    whole = pairs.prefill(state.clone(), [NEWLINE, 1, 2, 3])
    pairs.prefill(copy, [1, 2])
    assert np.array_equal(pairs.step(copy, 3), whole)


def test_greedy_takes_the_best_token(pairs):
    state, tokens = pairs.encode_source("abc"), []
    logits = pairs.step(state, NEWLINE)
    while len(tokens) < 20:
        best = int(np.argmax(logits[: pairs.tokenizer_size]))
        if best == NEWLINE:
            break
        tokens.append(best)
        logits = pairs.step(state, best)
    assert pairs.translate("abc", max_tokens=20) == pairs.decode(tokens)


@pytest.mark.parametrize("beam", [1, 3])
def test_scores_are_those_of_the_tokens(pairs, beam):
    (found,) = pairs.beam_search(["abc"], beam=beam, max_tokens=6, length_penalty=0.7)
    assert len(found) == beam
    for one in found:
        state, total = pairs.encode_source("abc"), 0.0
        logits = pairs.step(state, NEWLINE)
        for token in one.tokens + [NEWLINE] * one.finished:
            total += log_softmax(logits)[token]
            logits = pairs.step(state, token)
        assert one.log_probability == pytest.approx(total, rel=1e-6)
        length = len(one.tokens) + one.finished
        assert one.score == pytest.approx(total / length**0.7, rel=1e-6)
        assert one.text == pairs.decode(one.tokens)
        assert one.finished or len(one.tokens) == 6
    order = [(not one.finished, -one.score) for one in found]
    assert order == sorted(order)


def test_company_and_states_make_no_difference(pairs):
    sources = ["abc", "", "a longer source", "abc"]
    options = dict(beam=3, max_tokens=7)
    together = pairs.beam_search(sources, **options)
    assert together == [pairs.beam_search([source], **options)[0] for source in sources]
    assert together[0] == together[3] != together[2]
    state = pairs.encode_source("abc")
    assert pairs.beam_search([state], **options)[0] == together[0] and state.position == 0
    assert pairs.translate(state, **options) == together[0][0].text
    assert pairs.beam_search([]) == []


def test_same_answers_as_the_program(pairs, pairs_dir, classes, classes_dir):
    options = ["--prompt", "abc", "--beam", "3", "--max-tokens", "6", "--json"]
    (line,) = ask("generate", pairs_dir, *options)
    (found,) = pairs.beam_search(["abc"], beam=3, max_tokens=6)
    assert [h["score"] for h in line["hypotheses"]] == [one.score for one in found]
    assert [h["text"] for h in line["hypotheses"]] == [one.text for one in found]
    done = subprocess.run(
        [BUILD / "tarn", "classify", classes_dir, "--json"],
        check=True,
        capture_output=True,
        input=b"one text\nanother\n",
    )
    labels = [json.loads(row)["label"] for row in done.stdout.splitlines()]
    assert classes.predict(["one text", "another"]) == labels


def test_classes(classes):
    assert classes.labels == ["label 0", "label 1", "label 2"]
    texts = ["one text", b"bytes", [1, 2, 3], "x"]
    logits = classes.classify(texts)
    assert logits.shape == (4, 3) and logits.dtype == np.float32
    for row, text in zip(logits, texts, strict=True):
        assert np.array_equal(classes.classify([text])[0], row)
    assert classes.predict(texts) == [classes.labels[i] for i in logits.argmax(axis=1)]
    assert len({row.tobytes() for row in logits}) == 4
    assert classes.classify([]).shape == (0, 3) and classes.predict([]) == []


def test_threads_share_models(pairs, classes):
    wanted = pairs.translate("abc", beam=2, max_tokens=10), classes.predict(["abc"])
    got = []

    def work():
        got.append((pairs.translate("abc", beam=2, max_tokens=10), classes.predict(["abc"])))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [wanted] * 3


def test_models_refuse_what_they_are_not(pairs, classes, tmp_path_factory):
    decoder = runtime.Model(opened("linear", tmp_path_factory))
    for model, call in [
        (decoder, lambda: decoder.encode_source("a")),
        (decoder, lambda: decoder.classify(["a"])),
        (pairs, lambda: pairs.classify(["a"])),
        (classes, lambda: classes.encode_source("a")),
        (classes, classes.state),
    ]:
        with pytest.raises(ValueError) as error:
            call()
        assert "\n" not in str(error.value) and str(error.value)
    assert decoder.labels == pairs.labels == []
    assert decoder.memory_bytes == classes.memory_bytes == 0


def test_errors_name_the_argument(pairs, classes):
    for call in (pairs.beam_search, classes.classify):
        with pytest.raises(TypeError, match="list of texts"):
            call("abc")
    for name, value in [("beam", 0), ("beam", 2000), ("max_tokens", -1), ("length_penalty", -1.0)]:
        with pytest.raises(ValueError, match=name):
            pairs.translate("a", **{name: value})
    with pytest.raises(ValueError, match="token"):
        pairs.encode_source([10**6])
    with pytest.raises(ValueError, match="token"):
        classes.classify([[]])
    with pytest.raises(ValueError, match="token"):
        classes.classify(["ok", [-1]])
