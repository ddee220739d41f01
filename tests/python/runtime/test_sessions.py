"""tarn.runtime.Session: every operation against a plain list of tokens, replayed with
states, and its files, grammars, errors and prefix caches."""

import copy
import json
import pickle
import random
import re
import subprocess
import threading

import numpy as np
import pytest
from programs import BUILD

runtime = pytest.importorskip("tarn.runtime", exc_type=ImportError)


@pytest.fixture(scope="module", params=["linear", "full"])
def model(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / request.param
    subprocess.run([BUILD / "write_random_model", folder, request.param], check=True)
    return runtime.Model(folder, threads=1)


def replayed(model, tokens):
    """A state that has read these tokens one at a time, and nothing else."""
    state = model.state()
    for token in tokens:
        model.step(state, token)
    return state


def check(model, session, tokens):
    """The session is what a state says that has read the same tokens."""
    assert session.tokens.tolist() == tokens
    assert session.position == len(tokens)
    wanted = replayed(model, tokens)
    if tokens:
        assert session.logits.tobytes() == wanted.last_logits.tobytes()
    else:
        assert session.logits is None
    if model.state_bytes_per_token == 0:
        assert session.state_bytes == wanted.nbytes
    else:  # with room for more tokens, which depends on how they came
        assert session.state_bytes >= model.state_bytes_per_token * len(tokens)


class Plain:
    """What a session should be: its tokens, pending ones, marks and text."""

    def __init__(self):
        self.tokens, self.pending, self.marks = [], [], {}
        self.text = None  # (position of its first token, its options)

    def copy(self):
        return copy.deepcopy(self)

    def consume(self):
        self.tokens += self.pending
        self.pending = []

    def roll_back(self, position):
        del self.tokens[position:]
        self.pending = []
        self.marks = {name: at for name, at in self.marks.items() if at <= position}
        if self.text is not None and self.text[0] > position:
            self.text = None

    def draw(self, model):
        """The next token by the definition: None at the end of the text."""
        self.consume()
        begin, options = self.text
        if len(self.tokens) - begin >= options["max_tokens"]:
            return None
        logits = replayed(model, self.tokens).last_logits
        sampler = runtime.Sampler(
            model,
            seed=options["seed"],
            stream=options["stream"],
            repeat_penalty=options["repeat_penalty"],
        )
        logits = logits[: model.tokenizer_size]
        token = sampler.draw(logits, tokens=self.tokens, position=len(self.tokens))
        self.pending = [token]
        return token


def operate(model, rng, sessions, folder):
    """One operation on one of the sessions and on its plain value."""
    index = rng.randrange(len(sessions))
    session, plain = sessions[index]
    kind = rng.choice(
        "append append begin draw draw draw draw fork mark unmark back back_to file error".split()
    )
    if kind == "append":
        tokens = [rng.randrange(model.vocab_size) for _ in range(rng.choice([0, 1, 5, 70]))]
        session.append(tokens)
        plain.pending += tokens
        plain.consume()
        plain.text = None
    elif kind == "begin":
        prompt = [rng.randrange(model.vocab_size) for _ in range(rng.randrange(1, 4))]
        options = {
            "max_tokens": rng.randrange(6),
            "seed": rng.randrange(2**64),
            "stream": rng.randrange(3),
            "repeat_penalty": rng.choice([1.0, 1.5]),
        }
        session.begin(prompt, stop_tokens=(), **options)
        plain.pending += prompt
        plain.text = (len(plain.tokens) + len(plain.pending), options)
    elif kind == "draw" and plain.text is not None:
        drawn, wanted = session.next(), plain.draw(model)
        assert (drawn and drawn[0]) == wanted
        if drawn:
            assert drawn[1] == model.decode_bytes([wanted])
    elif kind == "fork":
        stream = rng.choice([None, 7])
        fork = session.fork(stream), plain.copy()
        if stream is not None and plain.text is not None:
            fork[1].text[1]["stream"] = stream
        assert fork[0] == session and fork[0].marks == session.marks
        if len(sessions) < 4:
            sessions.append(fork)
        else:
            sessions[rng.randrange(4)] = fork
    elif kind == "mark":
        name = rng.choice("abc")
        session.mark(name)
        plain.marks[name] = len(plain.tokens)
    elif kind == "unmark":
        assert session.unmark("b") == (plain.marks.pop("b", None) is not None)
    elif kind == "back":
        position = rng.randrange(len(plain.tokens) + 1)
        assert 0 <= session.rollback(position) <= position
        plain.roll_back(position)
    elif kind == "back_to" and "a" in plain.marks:
        session.rollback("a")
        plain.roll_back(plain.marks["a"])
    elif kind == "file":
        session.save(folder / "a.session")
        loaded = runtime.Session.load(model, folder / "a.session", every_token=3)
        assert loaded == session
        sessions[index] = loaded, plain
    elif kind == "error":
        before = session.fork()
        for call in (
            lambda: session.append([1, model.vocab_size]),
            lambda: session.begin([-1]),
            lambda: session.begin([1], top_p=2.0),
            lambda: session.rollback(session.position + 1),
            lambda: session.rollback("nowhere"),
            lambda: session.mark("no spaces"),
        ):
            with pytest.raises(ValueError):
                call()
        assert session == before


def test_random_operations_are_those_of_a_plain_value(model, tmp_path):
    rng = random.Random(5)
    sessions = [(runtime.Session(model), Plain())]
    sessions.append((runtime.Session(model, every_token=4, snapshot_bytes=1 << 16), Plain()))
    for step in range(900):
        operate(model, rng, sessions, tmp_path)
        session, plain = sessions[step % len(sessions)]
        assert session.pending.tolist() == plain.pending
        assert session.marks == plain.marks
        if step % 10 == 0 or step > 890:
            check(model, session, plain.tokens)
        if len(plain.tokens) > 400:
            session.rollback(3)
            plain.roll_back(3)
    for session, plain in sessions:
        check(model, session, plain.tokens)


def test_a_text_is_that_of_the_model(model):
    session = runtime.Session(model)
    for options in (
        {"seed": 3},
        {"temperature": 0, "stop": "\x00"},
        {"seed": 4, "stop": ["a", "bc"]},
    ):
        state = model.state()
        start = session.position
        wanted = model.generate("Some text", max_tokens=40, state=state, **options)
        assert session.text("Some text", 40, **options) == wanted
        assert session.pending.size == 0
        assert session.logits.tobytes() == state.last_logits.tobytes()
        session.rollback(start)
    assert runtime.Session(model).text("ab", 0) == ""
    session.append("ab")
    assert len(session.text(max_tokens=None, seed=1, stop_tokens=[]).encode()) >= 1
    assert session.end == "budget"
    assert session.position == 2 + 256


def test_the_end_of_a_text(model):
    session = runtime.Session(model)
    assert session.end is None
    session.begin("x", 3, stop_tokens=[])
    assert session.end is None
    list(session)
    assert session.end == "budget" and session.next() is None
    (first, _) = (session.begin("y", 5, temperature=0, stop_tokens=[]), session.next())[1]
    session.rollback(session.position)
    session.begin("", 5, temperature=0, stop_tokens=[first])
    assert session.next() == (-1, b"")
    assert (session.end, session.pending.size) == ("stop token", 0)
    session.text("", 500, regex="[ab]{4}", stop_tokens=[])
    assert session.end == "grammar"


def test_an_iteration_goes_on_where_it_was_left(model):
    whole, parts = runtime.Session(model), runtime.Session(model)
    wanted = whole.text("héllo", 30, seed=9)
    parts.begin("héllo", 30, seed=9)
    pieces = []
    while parts.end is None:
        for piece in parts:
            pieces.append(piece)
            break
        else:
            break
    pieces += list(parts)
    assert "".join(pieces) == wanted
    assert parts == whole


def test_grammars(model):
    session = runtime.Session(model)
    text = session.text("n: ", 60, regex="[0-9]{3}-[ab]{2}", seed=1)
    assert re.fullmatch("[0-9]{3}-[ab]{2}", text)
    schema = {"type": "object", "properties": {"a": {"enum": [1, 22]}}, "required": ["a"],
              "additionalProperties": False}  # fmt: skip
    for given in (schema, json.dumps(schema)):
        session.rollback(0)
        assert json.loads(session.text("n: ", 60, json_schema=given))["a"] in (1, 22)
    session.rollback(0)
    session.begin("n: ", 60, grammar='root ::= "yes" | "no"')
    session.next()
    forks = [session.fork(stream) for stream in range(5)]
    for fork in forks:
        list(fork)
    texts = {model.decode(fork.tokens)[3:] for fork in forks}
    assert texts <= {"yes", "no"}
    before = session.fork()
    with pytest.raises(runtime.FormatError, match="pattern"):
        session.begin("n", regex="(")
    with pytest.raises(ValueError, match="json_schema"):
        session.begin("n", grammar="root ::= [a]", json_schema=True)
    with pytest.raises(TypeError, match="regex"):
        session.begin("n", regex=b"a")
    assert session == before
    assert "".join(session) == "".join(before)


def test_files_keep_text_and_marks(model, tmp_path):
    session = runtime.Session(model)
    session.append(list(range(90)))
    session.mark("begin")
    session.begin("go", 40, seed=2, regex="[a-z ]*", stop_tokens=[])
    for _ in range(7):
        session.next()
    session.save(tmp_path / "s")
    loaded = runtime.Session.load(model, tmp_path / "s")
    assert loaded == session and loaded.marks == {"begin": 90}
    assert list(loaded) == list(session)
    assert loaded.rollback("begin") == session.rollback("begin")
    assert loaded == session
    data = bytearray((tmp_path / "s").read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "damaged").write_bytes(data)
    with pytest.raises(runtime.FormatError):
        runtime.Session.load(model, tmp_path / "damaged")
    for missing in (tmp_path / "none", ""):
        with pytest.raises(OSError):
            runtime.Session.load(model, missing)


def test_every_token_goes_back_without_reading(model):
    session = runtime.Session(model, every_token=8)
    session.append(list(range(100)))
    assert session.rollback(94) == 0
    plain = runtime.Session(model, snapshot_bytes=0)
    plain.append(list(range(100)))
    assert plain.snapshot_bytes == 0
    assert plain.rollback(94) > 0
    assert plain == session


def test_values_and_refusals(model, tmp_path):
    session = runtime.Session(model)
    with pytest.raises(TypeError, match="save"):
        pickle.dumps(session)
    with pytest.raises(TypeError, match="fork"):
        copy.copy(session)
    with pytest.raises(TypeError):
        hash(session)
    assert session != runtime.Session(runtime.Model(model._path))  # another model
    assert session != 3
    with pytest.raises(ValueError, match="every_token"):
        runtime.Session(model, every_token=1025)
    with pytest.raises(ValueError, match="snapshot_bytes"):
        runtime.Session(model, snapshot_bytes=-1)
    with pytest.raises(ValueError, match="text"):
        session.next()
    with pytest.raises(ValueError, match="prompt"):
        session.begin("")
    subprocess.run([BUILD / "write_random_model", tmp_path / "c", "encoder"], check=True)
    with pytest.raises(ValueError, match="want a model that generates"):
        runtime.Session(runtime.Model(tmp_path / "c"))


def test_the_model_lives_as_long_as_its_sessions(model):
    opened = runtime.Model(model._path, threads=1)
    session = runtime.Session(opened)
    cache = runtime.PrefixCache(1 << 20)
    session.append("abc")
    cache.insert(session)
    fork = session.fork()
    del opened, session
    fork.append("def")
    check(model, fork, model.encode("abcdef", add_special=True))
    assert cache.restore(fork, fork.tokens.copy()) == 3


def test_a_prefix_cache_gives_what_reading_gives(model):
    rng = random.Random(1)
    cache = runtime.PrefixCache(1 << 22)
    assert cache.bytes == 0
    session = runtime.Session(model)
    stem = [rng.randrange(256) for _ in range(100)]
    hits = 0
    for turn in range(30):
        prompt = stem[: rng.randrange(101)] + [rng.randrange(256) for _ in range(20)]
        known = cache.restore(session, prompt)
        assert 0 <= known <= len(prompt)
        assert session.tokens.tolist() == prompt[:known]
        session.append(prompt[known:])
        check(model, session, prompt)
        assert cache.restore(runtime.Session(model), prompt, space="other") == 0
        cache.insert(session)
        assert cache.restore(session, prompt) == len(prompt)
        hits += known > 0
        assert turn == 0 or cache.bytes > 0
    assert hits > 20
    nothing = runtime.PrefixCache(0)
    nothing.insert(session)
    assert nothing.restore(session, stem) == 0 and nothing.bytes == 0
    with pytest.raises(ValueError, match="model"):
        cache.insert(runtime.Session(runtime.Model(model._path)))
    with pytest.raises(ValueError, match="max_bytes"):
        runtime.PrefixCache(-1)


def test_threads_have_sessions_of_their_own(model):
    wanted = [runtime.Session(model).text("t", 60, seed=seed) for seed in range(4)]
    got = [None] * 4

    def write(seed):
        session = runtime.Session(model)
        session.append("t")
        got[seed] = session.text("", 60, seed=seed)

    threads = [threading.Thread(target=write, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == wanted


def test_logits_are_copies(model):
    session = runtime.Session(model)
    session.append([1, 2])
    logits = session.logits
    logits[:] = 0
    assert np.abs(session.logits).max() > 0


def test_drafts_do_not_change_a_text(model, tmp_path):
    texts = {}
    for name, source in (("none", None), ("ngram", "ngram"), ("model", model)):
        session = runtime.Session(model)
        session.speculate(source, most=7)
        session.begin("abcabcabc", 80, seed=3, temperature=0.5, stop_tokens=())
        drawn = [session.next() for _ in range(30)]
        session.mark("here")  # in the middle of a guess, or not
        fork = session.fork()
        drawn += list(iter(session.next, None))
        texts[name] = b"".join(piece for _, piece in drawn)
        check(model, session, session.tokens.tolist())
        assert session.position == 89 and not len(session.pending)
        assert b"".join(piece for _, piece in iter(fork.next, None)) == b"".join(
            piece for _, piece in drawn[30:]
        )
        assert fork == session
        session.rollback("here")
        check(model, session, session.tokens.tolist())
        assert session.position == 38
        drafted, accepted = session.draft_counts
        assert 0 <= accepted <= drafted and (source is not None or drafted == 0)
    assert texts["none"] == texts["ngram"] == texts["model"]


def test_drafts_are_checked(model):
    session = runtime.Session(model)
    for most in (0, 65):
        with pytest.raises(ValueError, match="most"):
            session.speculate(most=most)
    with pytest.raises(ValueError, match="ngram"):
        session.speculate("words")


def test_bytes(model, tmp_path):
    session = runtime.Session(model)
    session.append("some text")
    session.mark("here")
    session.save(tmp_path / "a.session")
    data = session.to_bytes()
    assert data == (tmp_path / "a.session").read_bytes()
    loaded = runtime.Session.from_bytes(model, data)
    assert loaded == session and loaded.marks == {"here": 9}
    for damaged in (b"", data[:-1], data[:40] + b"x" + data[41:]):
        with pytest.raises(runtime.FormatError):
            runtime.Session.from_bytes(model, damaged)


def test_two_threads_in_one_session(model):
    """A second call at the same time is refused, with nothing changed."""
    session, refused = runtime.Session(model), []
    tokens = [1] * 3000
    done = threading.Event()

    def watch():
        while not done.is_set():
            try:
                session.position
            except ValueError as error:
                refused.append(str(error))

    def use(call, *words):
        while True:  # the other thread is refused, too
            try:
                return call(*words)
            except ValueError:
                pass

    watching = threading.Thread(target=watch)
    watching.start()
    while not refused:  # however rarely the two meet
        use(session.append, tokens)
        use(session.rollback, 0)
    done.set()
    watching.join()
    assert "another thread" in refused[0]
    session.append(tokens)
    check(model, session, tokens)
