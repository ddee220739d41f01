"""`tarn generate` with session files and with grammars."""

import json
import re

import pytest


def generate(tarn, *arguments, code=0, **options):
    done = tarn("generate", *arguments, "--json", **options)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout) if code == 0 else done.stderr.decode()


@pytest.mark.parametrize("kind", ["linear", "full"])
def test_a_parked_text_goes_on_as_one_run(tarn, models, tmp_path, kind):
    file = tmp_path / "a.session"
    options = (models / kind, "--repeat-penalty", 1.3, "--seed", 11)
    whole = generate(tarn, *options, "--prompt", "begin", "--max-tokens", 30)
    plain = generate(tarn, *options, "--prompt", "begin", "--max-tokens", 10)
    first = generate(tarn, *options, "--prompt", "begin", "--max-tokens", 10, "--save", file)
    assert first["text"] == plain["text"] and "loaded_tokens" not in first
    # The seed is the session's.
    rest = generate(tarn, *options[:3], "--max-tokens", 20, "--load", file, "--save", file)
    assert first["text"] + rest["text"] == whole["text"]
    assert (rest["loaded_tokens"], rest["read_again"]) == (15, 0)
    assert (rest["prompt_tokens"], rest["seed"]) == (0, 11)
    # A prompt follows what is there.
    more = generate(tarn, *options, "--prompt", "and", "--max-tokens", 5, "--load", file)
    assert (more["loaded_tokens"], more["prompt_tokens"]) == (35, 3)
    again = generate(tarn, *options, "--prompt", "and", "--max-tokens", 5, "--load", file)
    assert again["text"] == more["text"]  # the file is as it was


def test_the_figures_say_what_was_loaded(tarn, models, tmp_path):
    file = tmp_path / "a.session"
    assert tarn("generate", models / "char", "--max-tokens", 4, "--save", file).returncode == 0
    done = tarn("generate", models / "char", "--max-tokens", 4, "--load", file)
    assert done.returncode == 0
    assert "5 tokens loaded, 0 read again" in done.stderr.decode()


def test_session_files_are_checked(tarn, models, tmp_path):
    file = tmp_path / "a.session"
    generate(tarn, models / "linear", "--prompt", "a", "--max-tokens", 3, "--save", file)
    for model, path in (("full", file), ("linear", models / "linear" / "config.json")):
        error = generate(tarn, models / model, "--load", path, code=3)
        assert "--load" in error and error.count("\n") == 1
    error = generate(tarn, models / "linear", "--load", tmp_path / "none", code=3)
    assert "none" in error
    assert "--load" in generate(tarn, models / "linear", "--load", "", code=2)
    missing = tmp_path / "no" / "folder"
    done = tarn("generate", models / "linear", "--max-tokens", 2, "--save", missing)
    assert done.returncode != 0 and "folder" in done.stderr.decode()
    assert not missing.exists()


def test_drafts_do_not_change_the_text(tarn, models, tmp_path):
    file = tmp_path / "a.session"
    options = (models / "linear", "--prompt", "one two one two", "--max-tokens", 60, "--seed", 4)
    plain = generate(tarn, *options)
    assert "drafted_tokens" not in plain
    for source in ("ngram", models / "linear"):
        got = generate(tarn, *options, "--speculate", source, "--save", file)
        assert got["text"] == plain["text"]
        assert 0 <= got["accepted_tokens"] <= got["drafted_tokens"]
        done = tarn("generate", *options, "--speculate", source)
        assert re.search(r"drafts +\d+ tokens drafted, \d+ accepted", done.stderr.decode())
        more = generate(tarn, models / "linear", "--load", file, "--max-tokens", 5)
        assert more["loaded_tokens"] == 15 + 60
    error = generate(tarn, *options, "--speculate", tmp_path / "none", code=3)
    assert "--speculate" in error and error.count("\n") == 1
    error = generate(tarn, *options, "--speculate", models / "char", code=2)
    assert "tokenizer" in error and error.count("\n") == 1


def test_grammars(tarn, models, tmp_path):
    options = (models / "linear", "--prompt", "n", "--max-tokens", 60)
    for seed in range(3):
        text = generate(tarn, *options, "--regex", "[0-9]{3}-[ab]{2}", "--seed", seed)["text"]
        assert re.fullmatch("[0-9]{3}-[ab]{2}", text)
    gbnf = tmp_path / "g.gbnf"
    gbnf.write_text('root ::= "yes" | "no"\n')
    got = generate(tarn, *options, "--grammar", gbnf)
    assert got["text"] in ("yes", "no") and got["finish_reason"] == "stop"
    schema = tmp_path / "s.json"
    schema.write_text('{"enum": [[1, "two"], {"three": null}]}')
    text = generate(tarn, *options, "--json-schema", schema)["text"]
    assert json.loads(text) in ([1, "two"], {"three": None})


def test_a_grammar_continues_in_a_session(tarn, models, tmp_path):
    file = tmp_path / "a.session"
    generate(tarn, models / "linear", "--prompt", "n", "--regex", "[ab]{5}", "--save", file)
    text = generate(tarn, models / "linear", "--regex", "[cd]{5}", "--load", file)["text"]
    assert re.fullmatch("[cd]{5}", text)


def test_grammars_that_are_refused(tarn, models, tmp_path):
    linear = models / "linear"
    assert "--regex" in generate(tarn, linear, "--regex", "(", code=2)
    bad = tmp_path / "bad"
    bad.write_text("root = 3 {")
    assert "--grammar" in generate(tarn, linear, "--grammar", bad, code=2)
    assert "--json-schema" in generate(tarn, linear, "--json-schema", bad, code=2)
    error = generate(tarn, linear, "--grammar", bad, "--regex", "a", code=2)
    assert "--regex" in error and "both" in error
    done = tarn("generate", linear, "--grammar", tmp_path / "none")
    assert done.returncode != 0 and "none" in done.stderr.decode()
