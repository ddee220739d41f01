"""Sequence-to-sequence models and classifiers from the command line."""

import csv
import gzip
import json

import numpy as np
import plain_model
import plain_pairs
import pytest

NEWLINE = 10
LABELS = ["no", "yes", "it depends"]


@pytest.fixture(scope="module", params=["linear", "full"])
def seq2seq(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("seq2seq") / request.param
    config = plain_pairs.config_of("seq2seq", request.param)
    # So that a target ends now and then.
    weights = plain_pairs.write_model(folder, config, seed=4)
    weights["predictor.bias"][NEWLINE] += 1.5
    plain_model.write_safetensors(folder / "model.safetensors", weights)
    return folder, plain_pairs.PlainPairs(config, weights)


@pytest.fixture(scope="module", params=["linear", "full"])
def classifier(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("classifier") / request.param
    config = plain_pairs.config_of("encoder", request.param)
    weights = plain_pairs.write_model(folder, config, seed=5, labels=LABELS)
    return folder, plain_pairs.PlainPairs(config, weights)


def greedy(model, source, most):
    """Tokens of the greedy target; None where float32 cannot decide."""
    target = [NEWLINE]
    while len(target) <= most:
        row = model.target_logits(source, target)[-1]
        best = np.sort(row)
        if best[-1] - best[-2] < 1e-3:
            return None
        target.append(int(row.argmax()))
        if target[-1] == NEWLINE:
            return target[1:-1]
    return target[1:]


def softmax(logits):
    e = np.exp(logits - logits.max())
    return e / e.sum()


def test_targets_follow_the_plain_model(tarn, seq2seq):
    folder, model = seq2seq
    compared = 0
    for text in (b"Tarn", b"a", b"What is the second longest word?"):
        want = greedy(model, list(text), 12)
        if want is None:
            continue
        compared += 1
        done = tarn("generate", folder, "--prompt", text.decode(), "--max-tokens", 12)
        assert done.returncode == 0, done.stderr
        assert done.stdout == bytes(want) + b"\n"
    assert compared >= 2


def test_a_target_for_each_line_and_figures_on_stderr(tarn, seq2seq):
    folder, _ = seq2seq
    lines = ["one", "two", "three"]
    done = tarn(
        "generate",
        folder,
        "--prompt",
        "-",
        "--max-tokens",
        6,
        "--json",
        stdin="\n".join(lines).encode(),
    )
    assert done.returncode == 0, done.stderr
    together = [json.loads(line) for line in done.stdout.splitlines()]
    assert [t["source_tokens"] for t in together] == [3, 3, 5]
    for line, got in zip(lines, together):
        alone = json.loads(
            tarn(
                "generate", folder, "--prompt", line, "--max-tokens", 6, "--json", "--threads", 2
            ).stdout
        )
        assert alone["text"] == got["text"] and alone["score"] == got["score"]
    for words in ("sources", "targets", "bytes a hypothesis", "bytes a source"):
        assert words in done.stderr.decode()


def test_beams_come_with_scores(tarn, seq2seq):
    folder, model = seq2seq
    source = b"beam search"
    done = tarn(
        "generate",
        folder,
        "--prompt",
        source.decode(),
        "--max-tokens",
        5,
        "--beam",
        4,
        "--length-penalty",
        0.5,
        "--json",
    )
    assert done.returncode == 0, done.stderr
    got = json.loads(done.stdout)
    found = got["hypotheses"]
    assert len(found) == 4 and got["text"] == found[0]["text"]
    order = [(not h["finished"], -h["score"]) for h in found]
    assert order == sorted(order)
    for h in found:
        length = h["tokens"] + h["finished"]
        assert h["score"] == pytest.approx(h["log_probability"] / length**0.5)
    # The log-probability is that of the plain model.
    text = found[0]["text"].encode()
    if len(text) == found[0]["tokens"]:  # each byte a token
        target = [NEWLINE, *text] + ([NEWLINE] if found[0]["finished"] else [])
        rows = model.target_logits(list(source), target[:-1])
        want = sum(math_log_softmax(row)[t] for row, t in zip(rows, target[1:]))
        assert found[0]["log_probability"] == pytest.approx(want, abs=1e-3)


def math_log_softmax(row):
    return row - row.max() - np.log(np.exp(row - row.max()).sum())


def test_classes_follow_the_plain_model(tarn, classifier):
    folder, model = classifier
    texts = ["yes or no", "a", "the longest of the three texts of this test"]
    done = tarn("classify", folder, "--json", stdin="\n".join(texts).encode())
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == 3
    for text, got in zip(texts, lines):
        want = softmax(model.class_logits(list(text.encode())))
        assert list(got["probabilities"]) == LABELS
        assert np.allclose(list(got["probabilities"].values()), want, atol=1e-4)
        assert got["label"] == max(got["probabilities"], key=got["probabilities"].get)
        assert got["probability"] == got["probabilities"][got["label"]]
    plain = tarn("classify", folder, stdin="\r\n".join(texts).encode() + b"\r\n")
    assert plain.stdout.decode().splitlines() == [line["label"] for line in lines]


def test_batches_and_threads_change_nothing(tarn, classifier, tmp_path):
    folder, _ = classifier
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"text {'x' * (i * 7 % 31)} {i}\n" for i in range(50)))
    outputs = {
        tarn("classify", folder, path, "--json", "--batch", batch, "--threads", threads).stdout
        for batch in (1, 7, 64)
        for threads in (1, 2)
    }
    assert len(outputs) == 1 and outputs.pop().count(b"\n") == 50


def test_classify_says_what_is_wrong(tarn, classifier, models):
    folder, _ = classifier
    empty = tarn("classify", folder, stdin=b"one\n\ntwo\n")
    assert empty.returncode == 3 and b"standard input:2" in empty.stderr
    other = tarn("classify", models / "linear", stdin=b"x\n")
    assert other.returncode == 3 and b"arch 'decoder'" in other.stderr
    assert tarn("classify", folder, "absent.txt").returncode == 3
    assert tarn("classify", folder, "--batch", 0).returncode == 2
    generate = tarn("generate", folder, "--prompt", "x")
    assert generate.returncode == 3 and b"tarn classify" in generate.stderr


def test_options_of_other_models_are_refused(tarn, seq2seq, models):
    folder, _ = seq2seq
    sampled = tarn("generate", folder, "--prompt", "x", "--temperature", 0.5)
    assert sampled.returncode == 2 and b"--temperature" in sampled.stderr
    beam = tarn("generate", models / "linear", "--prompt", "x", "--beam", 2)
    assert beam.returncode == 2 and b"--beam" in beam.stderr
    bench = tarn("bench", folder, "-p", 8, "-n", 8)
    assert bench.returncode == 3 and b"arch 'seq2seq'" in bench.stderr


def test_eval_of_a_classifier(tarn, classifier, tmp_path):
    folder, model = classifier
    random = np.random.default_rng(1)
    rows, right = [], 0
    for i in range(30):
        text = "".join(random.choice(list("abcdef "), 5 + i % 9)).strip() or "a"
        label = LABELS[i % 2]
        rows.append(f"{label}\t{text}\n")
        logits = model.class_logits(list(text.encode()))
        right += LABELS[int(logits.argmax())] == label
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(rows) + "\n")
    got = json.loads(tarn("eval", folder, path, "--json").stdout)
    assert got["examples"] == 30
    assert got["accuracy"] == pytest.approx(right / 30)
    assert got["majority_share"] == pytest.approx(0.5)
    for bad, words in (
        ("maybe\tx\n", b"labels.json"),
        ("no label\n", b"label TAB text"),
        ("", b"at least 1 example"),
    ):
        path.write_text(rows[0] + bad if bad else "")
        done = tarn("eval", folder, path)
        assert done.returncode == 3 and words in done.stderr
        assert not bad or b"pairs.tsv:2" in done.stderr


def test_eval_of_csv_gives_the_figures_of_lines(tarn, classifier, seq2seq, tmp_path):
    pairs = [
        (LABELS[i % 3], f"text {i}, with a comma" + ' and "quotes"' * (i % 2)) for i in range(12)
    ]
    for folder, header in ((classifier[0], ("label", "text")), (seq2seq[0], ("source", "target"))):
        plain = tmp_path / "x.tsv"
        plain.write_text("".join(f"{a}\t{b}\n" for a, b in pairs))
        usual, named = tmp_path / "x.csv", tmp_path / "named.txt"
        with open(usual, "w", newline="") as file:
            csv.writer(file).writerows([header, *pairs])
        with open(named, "w", newline="") as file:
            csv.writer(file).writerows(
                [("id", "stars", "review"), *((i, *pair) for i, pair in enumerate(pairs))]
            )
        (tmp_path / "x.csv.gz").write_bytes(gzip.compress(usual.read_bytes()))
        flags = ["--label-column", "stars", "--text-column", "review"]
        if header[0] == "source":
            flags = ["--text-column", "stars", "--label-column", "review"]
        got = [
            tarn("eval", folder, plain),
            tarn("eval", folder, usual),
            tarn("eval", folder, tmp_path / "x.csv.gz"),
            tarn("eval", folder, named, *flags),
            tarn("eval", folder, "-", *flags, stdin=named.read_bytes()),
        ]
        figures = [
            [line for line in done.stdout.splitlines() if not line.startswith(b"seconds")]
            for done in got
        ]
        assert got[0].returncode == 0 and figures[0][0] == b"examples 12"
        assert all(other == figures[0] for other in figures), [g.stderr for g in got]


def test_eval_of_csv_says_what_is_wrong(tarn, classifier, models, tmp_path):
    folder, _ = classifier
    path = tmp_path / "x.csv"
    for text, words in (
        ("a,b\n1,2\n", b"'label' and 'text'"),
        ("", b"x.csv"),
        ("label,text\nyes\n", b"x.csv:2: want 2 fields"),
        ("label,text\nyes,a\nmaybe,b\n", b"x.csv:3: want a label of"),
        ("label,text\n", b"at least 1 example"),
    ):
        path.write_text(text)
        done = tarn("eval", folder, path)
        assert done.returncode == 3 and words in done.stderr, done.stderr
    refused = tarn("eval", models / "linear", path, "--label-column", "x")
    assert refused.returncode == 2 and b"--label-column" in refused.stderr


def edits(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a):
        row, before = [i + 1], row
        for j, y in enumerate(b):
            row.append(min(before[j] + (x != y), before[j + 1] + 1, row[j] + 1))
    return row[-1]


def test_eval_of_targets(tarn, seq2seq, tmp_path):
    folder, _ = seq2seq
    sources = [f"source {i}" for i in range(7)]
    # Long enough that no target is cut: 2 * longest + 16 tokens.
    targets = ["abc" * (i + 1) for i in range(7)]
    most = 2 * max(map(len, targets)) + 16
    found = [
        tarn("generate", folder, "--prompt", s, "--max-tokens", most).stdout[:-1] for s in sources
    ]
    targets[2] = found[2].decode("latin-1")
    # It is no longer than the longest of the others, from which eval sets its limit.
    clean = (
        0 < len(targets[2]) <= 21 and targets[2].isascii() and not set(targets[2]) & set("\t\r\n")
    )
    if not clean:
        targets[2] = "abc"
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{s}\t{t}\n" for s, t in zip(sources, targets)), newline="")
    got = json.loads(tarn("eval", folder, path, "--batch", 100, "--json").stdout)
    want = sum(edits(t.encode(), f) for t, f in zip(targets, found))
    assert got["examples"] == 7
    assert got["target_tokens"] == sum(map(len, targets))
    assert got["token_error_rate"] == pytest.approx(want / got["target_tokens"])
    assert got["exact_match"] == pytest.approx((1 if clean else 0) / 7)
    refused = tarn("eval", folder, path, "--per-token")
    assert refused.returncode == 2 and b"--per-token" in refused.stderr


def test_info_tells_what_is_kept(tarn, seq2seq, classifier):
    folder, _ = seq2seq
    got = json.loads(tarn("info", folder, "--json").stdout)
    kind = got["config"]["attention"]
    assert (got["config"]["arch"], got["config"]["task"]) == ("seq2seq", "seq2seq")
    per_layer = 4 * 4 * (8 * 8 + 8)  # heads x floats x (S and z)
    assert got["state_bytes"] == (2 * per_layer if kind == "linear" else 0)
    assert got["memory_bytes"] == (2 * per_layer if kind == "linear" else 0)
    assert got["memory_bytes_per_source_token"] == (0 if kind == "linear" else 2 * 4 * 16 * 4)
    config = {"n_classes": 0, **got["config"]}  # a key that targets do not have
    total = sum(int(np.prod(s)) for s in plain_pairs.shapes(config).values())
    assert got["parameters"]["total"] == total
    # Heads of 8, C = M = 8: 2CM / (E + M) keys at once, twice that causally.
    less = got["scaling"]["linear_is_less_from"]
    assert less["encoder"] == {"parallel": 8}
    assert less["decoder"]["parallel"] == 16 and less["decoder"]["memory"] == 72 / 16
    layers, decoders = got["config"]["n_layers"], got["config"]["n_decoder_layers"]
    blocks = (12 * layers + 16 * decoders) * got["config"]["d_model"] ** 2
    tables = 2 * got["config"]["vocab_size"] * got["config"]["d_model"]
    assert got["parameters_textbook"] == blocks + tables
    classes = json.loads(tarn("info", classifier[0], "--json").stdout)
    scaling = classes["scaling"]
    assert scaling["linear_is_less_from"] == {"parallel": 8}
    # Softmax over n keys costs 2 n (E + M) per head and token, besides what does
    # not grow; nothing grows in linear attention.
    softmax = scaling["softmax"]["parallel_flop"]
    heads = classes["config"]["n_layers"] * classes["config"]["n_heads"]
    assert softmax[1] - softmax[0] == heads * 2 * (1024 - 128) * 16
    assert len(set(scaling["linear"]["parallel_flop"])) == 1
    assert "step_flop" not in scaling["softmax"]
    assert classes["classes"] == LABELS and classes["config"]["task"] == "classify"
    assert b"it depends" in tarn("info", classifier[0]).stdout


def test_verify_reads_the_labels(tarn, classifier, seq2seq):
    assert tarn("verify", seq2seq[0]).stdout.startswith(b"ok ")
    folder = classifier[0]
    assert tarn("verify", folder).returncode == 0
    good = (folder / "labels.json").read_text()
    try:
        (folder / "labels.json").write_text('["no", "yes", "no"]')
        done = tarn("verify", folder)
        assert done.returncode == 3 and b"labels.json" in done.stdout
        opened = tarn("classify", folder, stdin=b"x\n")
        assert opened.returncode == 3 and b"labels.json" in opened.stderr
    finally:
        (folder / "labels.json").write_text(good)


@pytest.mark.parametrize(
    "key, changes",
    [
        ("arch", {"arch": "lstm", "task": "lm", "n_classes": 0}),
        ("attention", {"attention": "reformer"}),
        ("feature_map", {"feature_map": "favor", "n_dims": 8}),
    ],
)
def test_other_models_are_refused_by_name(tarn, tmp_path, key, changes):
    config = plain_pairs.config_of("encoder")
    plain_pairs.write_model(tmp_path, config, labels=LABELS)
    (tmp_path / "config.json").write_text(plain_model.file_text({**config, **changes}))
    done = tarn("classify", tmp_path, stdin=b"x\n")
    assert done.returncode == 3, done.stderr
    assert f"config.json: {key}: ".encode() in done.stderr
    assert changes[key].encode() in done.stderr
