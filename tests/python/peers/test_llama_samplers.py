"""The stages of sampling against llama.cpp's own: the tokens that are left of random
rows and their probabilities, for each stage and for chains of several. Skipped where the
peers' Python has no llama-cpp-python (scripts/bench_setup.sh, TARN_PEERS_PYTHON)."""

import importlib
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "bench"))
runtime = pytest.importorskip("tarn.runtime", exc_type=ImportError)
llama = importlib.import_module("llama_process")
if llama.missing():
    pytest.skip(f"llama.cpp: {llama.missing()}", allow_module_level=True)

VOCAB = 400
CASES = 60
TOKENIZER = "qwen2"  # of tests/tokenizers/cases.py
OFF = {"temperature": 1, "top_k": 0, "top_p": 1, "min_p": 0}
RANDOM = np.random.default_rng(11)


def pick(*values):
    return values[RANDOM.integers(len(values))]


# Name -> a function that gives options of tarn's and llama.cpp's stages for them.
def penalties():
    o = dict(
        repeat_last_n=pick(1, 20, 64),
        repeat_penalty=pick(1.0, 1.3, 0.8),
        frequency_penalty=pick(0.0, 0.4, -0.3),
        presence_penalty=pick(0.0, 0.7, -0.5),
    )
    return o, [["penalties", VOCAB, *o.values()]]


def dry():
    o = dict(
        dry_multiplier=pick(0.8, 2.0),
        dry_base=pick(1.75, 1.0, 3.0),
        dry_allowed_length=pick(1, 2, 4),
        dry_penalty_last_n=pick(10, 64, 200),
    )
    return o, [["dry", *o.values(), []]]


def top_n_sigma():
    n = pick(0.5, 1.0, 2.0)
    return {"top_n_sigma": n}, [["top_n_sigma", n]]


def top_k():
    k = pick(1, 3, 40, 399, 1000)
    return {"top_k": k}, [["top_k", k]]


def typical_p():
    p = pick(0.2, 0.5, 0.95)
    return {"typical_p": p}, [["typical", p, 0]]


def top_p():
    p = pick(0.1, 0.5, 0.95)
    return {"top_p": p}, [["top_p", p, 0]]


def min_p():
    p = pick(0.01, 0.05, 0.5, 1.0)
    return {"min_p": p}, [["min_p", p, 0]]


def min_keep():
    p, q, r, n = pick(0.01, 0.3), pick(0.01, 0.3), pick(0.5, 0.9), pick(2, 10)
    ours = {"typical_p": p, "top_p": q, "min_p": r, "min_keep": n}
    return ours, [["typical", p, n], ["top_p", q, n], ["min_p", r, n]]


def xtc():
    """Always acts."""
    t, n = pick(0.01, 0.05, 0.1, 0.4), pick(0, 5)
    ours = {"xtc_probability": 1.0, "xtc_threshold": t, "min_keep": n}
    return ours, [["xtc", 1.0, t, n, 1]]


def temperature():
    t = pick(0.3, 0.8, 2.5, 0.0, -1.0)
    return {"temperature": t}, [["temp", t]]


def dynatemp():
    o = dict(
        temperature=pick(0.5, 1.5), dynatemp_range=pick(0.4, 1.0), dynatemp_exponent=pick(1.0, 2.0)
    )
    return o, [["temp_ext", *o.values()]]


def chain():
    """All stages in the order that both have by default."""
    ours, theirs = {}, []
    for stage in (penalties, dry, top_k, typical_p, top_p, min_p, dynatemp):
        if RANDOM.random() < 0.7:
            o, s = stage()
            ours |= o
            theirs += s
    return ours, theirs


STAGES = [
    penalties, dry, top_n_sigma, top_k, typical_p, top_p, min_p, min_keep, xtc, temperature,
    dynatemp, chain,
]  # fmt: skip


def theirs_of(cases):
    done = subprocess.run(
        [str(llama.python()), str(ROOT / "bench" / "peer_llama_samplers.py")],
        input="".join(json.dumps(case) + "\n" for case in cases),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def random_row():
    return (RANDOM.normal(size=VOCAB) * pick(0.5, 2, 4)).astype(np.float32)


def repeating_tokens():
    """Few different ones, so that much repeats."""
    return RANDOM.integers(0, pick(3, 10, VOCAB), RANDOM.integers(1, 250)).tolist()


def probabilities(row):
    """Ids, best first, and probabilities of what llama.cpp leaves."""
    logits = np.array(row["logits"])
    p = np.exp(logits - logits.max())
    order = np.lexsort((row["ids"], -logits))
    return np.array(row["ids"])[order], (p / p.sum())[order]


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.__name__)
def test_a_stage_leaves_what_llama_cpp_leaves(stage):
    asked = []
    for _ in range(CASES):
        ours, chain = stage()
        row, tokens = random_row(), repeating_tokens()
        asked.append((ours, row, tokens, chain))
    found = theirs_of(
        {"chain": chain, "tokens": tokens, "rows": [row.tolist()]}
        for _, row, tokens, chain in asked
    )
    cut = 0
    for (ours, row, tokens, _), (wanted,) in zip(asked, found):
        sampler = runtime.Sampler(**(OFF | ours))
        ids, p = sampler.distribution(row, tokens=tokens)
        wanted_ids, wanted_p = probabilities(wanted)
        assert sorted(ids) == sorted(wanted_ids), ours
        table = dict(zip(wanted_ids.tolist(), wanted_p))
        for token, probability in zip(ids.tolist(), p):
            assert abs(probability - table[token]) <= 1e-6 + 3e-5 * probability, ours
        plain, plain_p = runtime.Sampler(**OFF).distribution(row)
        cut += len(ids) != len(plain) or bool(np.abs(p - plain_p).max() > 1e-4)
    assert cut > CASES // 10  # the stage did something


@pytest.fixture(scope="module")
def tokenized(tmp_path_factory):
    """A GGUF file of a random model with a byte-level tokenizer, and it opened."""
    folder = tmp_path_factory.mktemp("tokenized")
    for name in ("programs", "published", "published_ways"):
        pytest.importorskip(name)
    sys.path.insert(0, str(ROOT / "tests" / "python" / "runtime"))
    folder_of = pytest.importorskip("test_gguf_texts").folder_of
    folder_of(TOKENIZER, folder)
    file = folder / "model.gguf"
    words = ["export", folder, "--to", "gguf", "--out", file]
    program = importlib.import_module("programs").BUILD / "tarn"
    done = subprocess.run([program, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return file, runtime.Model(file)


def test_sequence_breakers_are_those_of_llama_cpp(tokenized):
    """Texts within a token, equal to one, and split over several."""
    file, model = tokenized
    pieces = ["the ", "fox", "\n", ": ", "\n\n", "ing", "jumps over ", '"', "*", "e f", " "]
    asked = []
    for _ in range(CASES):
        ours, ((*chain, _),) = dry()
        ours["dry_sequence_breakers"] = RANDOM.choice(
            ["\n", ":", "the c", "e f", "fox\n", "over the", "*", "ump", " "], pick(1, 3), False
        ).tolist()
        text = "".join(RANDOM.choice(pieces[: pick(4, 11)], 60))
        tokens = model.encode(text)
        row = RANDOM.normal(size=model.tokenizer_size).astype(np.float32)
        asked.append((ours, row, tokens, [[*chain, ours["dry_sequence_breakers"]]]))
    found = theirs_of(
        {"chain": chain, "tokens": tokens, "rows": [row.tolist()], "vocabulary": str(file)}
        for _, row, tokens, chain in asked
    )
    bound = 0
    for (ours, row, tokens, _), (wanted,) in zip(asked, found):
        ids, p = runtime.Sampler(model, **(OFF | ours)).distribution(row, tokens=tokens)
        wanted_ids, wanted_p = probabilities(wanted)
        table = dict(zip(wanted_ids.tolist(), wanted_p))
        for token, probability in zip(ids.tolist(), p):
            assert abs(probability - table[token]) <= 1e-6 + 3e-5 * probability, ours
        free = OFF | ours | {"dry_sequence_breakers": []}
        _, free_p = runtime.Sampler(model, **free).distribution(row, tokens=tokens)
        bound += bool(np.abs(np.sort(p) - np.sort(free_p)).max() > 1e-6)
    assert bound > CASES // 10  # breakers did something


@pytest.mark.parametrize("version", [1, 2])
def test_mirostat_follows_llama_cpp(version):
    """llama.cpp draws; both bounds of the surprise then cut the next row alike."""
    tau, eta = 3.0, 0.2
    rows = [random_row() for _ in range(80)]
    name = ["mirostat", VOCAB, 7, tau, eta, 100] if version == 1 else ["mirostat_v2", 7, tau, eta]
    case = {"chain": [["temp", 0.9], name], "tokens": [], "rows": [row.tolist() for row in rows]}
    (found,) = theirs_of([case])
    sampler = runtime.Sampler(mirostat=version, mirostat_tau=tau, mirostat_eta=eta, temperature=0.9)
    assert sampler.mu == 2 * tau
    sizes = set()
    for row, wanted in zip(rows, found):
        ids, p = sampler.distribution(row)
        wanted_ids, wanted_p = probabilities(wanted)
        assert ids.tolist() == wanted_ids.tolist()
        np.testing.assert_allclose(p, wanted_p, rtol=3e-5, atol=1e-6)
        sizes.add(len(ids))
        # mu as tarn changes it for the token that llama.cpp drew: the only one allowed
        # would have probability 1, so the position is searched at which tarn draws it too.
        before = sampler.mu
        for position in range(100000):
            sampler.mu = before
            if sampler.draw(row, position=position) == wanted["selected"]:
                break
        else:
            pytest.fail("a token that is never drawn")
    assert len(sizes) > 10


def test_a_difference_is_told():
    """The comparison is no formality: another option gives other tokens."""
    row = random_row()
    ((wanted,),) = theirs_of([{"chain": [["top_k", 9]], "tokens": [], "rows": [row.tolist()]}])
    ids, _ = runtime.Sampler(**(OFF | {"top_k": 10})).distribution(row)
    assert sorted(ids) != sorted(wanted["ids"])
