"""Sampling in Python, without torch: the options are those of the table, they reach the
sampler, and docs/sampling.md lists them. `python tests/python/runtime/test_sampling.py`
writes the table of that page."""

import importlib
import json
import math
import pathlib
import sys
import typing

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
runtime = pytest.importorskip("tarn.runtime", exc_type=ImportError)
sampling = importlib.import_module("tarn.runtime._sampling")

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "sampling.md"
BEGIN, END = "<!-- table: begin -->\n", "<!-- table: end -->"
ROW = np.array([0.5, 3.0, 2.0, 2.9, -1.0], np.float32)


def table():
    lines = ["| option | default | takes | what it does |", "|---|---|---|---|"]
    for row in runtime.sampling_options():
        default = json.dumps(row.default, ensure_ascii=False)
        if row.name == "samplers":
            default = "all, as above"
        else:
            default = f"`{default}`"
        lines.append(f"| `{row.name}` | {default} | {row.range} | {row.help} |")
    return "\n".join(lines) + "\n"


def with_table(text):
    before, rest = text.split(BEGIN)
    return before + BEGIN + table() + END + rest.split(END)[1]


def test_the_page_has_the_table():
    assert PAGE.read_text() == with_table(PAGE.read_text())


def test_the_page_lists_every_stage_and_its_options():
    stages = PAGE.read_text().split("| stage | options |")[1].split("\n\n")[0]
    listed = {part.strip("` ") for part in stages.replace("|", ",").split(",")}
    for row in runtime.sampling_options():
        if row.name not in ("logit_bias", "mirostat", "mirostat_tau", "mirostat_eta", "min_keep"):
            assert row.name == "samplers" or row.name in listed, row.name
    assert set(sampling.sampling_options()[-1].default) <= listed


def test_the_types_are_those_of_the_table():
    hints = typing.get_type_hints(sampling.AllSamplingOptions)
    rows = {row.name: row for row in runtime.sampling_options()}
    assert set(hints) == set(rows)
    own = {"temperature", "top_k", "top_p", "min_p"}
    assert set(sampling.SamplingOptions.__annotations__) == set(rows) - own
    for name, row in rows.items():
        assert (int in typing.get_args(hints[name])) == (row.type == "integer"), name
        assert (float in typing.get_args(hints[name])) == (row.type == "real"), name


def test_every_option_is_set_and_refused_by_name():
    for row in runtime.sampling_options():
        runtime.Sampler(**{row.name: None})
        if row.name == "logit_bias":
            runtime.Sampler(logit_bias={3: False, 1: -2})
        else:
            runtime.Sampler(**{row.name: row.default})
        bad = "x" if row.type == "texts" else -(10**9) if row.type == "integer" else math.nan
        if row.name == "dry_sequence_breakers":
            bad = ["x" * 41]
        error = TypeError if row.name == "logit_bias" else ValueError
        with pytest.raises(error, match=row.name):
            runtime.Sampler(**{row.name: bad})
        with pytest.raises(TypeError, match=row.name):
            runtime.Sampler(**{row.name: object() if row.type != "texts" else [3]})
    with pytest.raises(TypeError, match="nucleus"):
        runtime.Sampler(nucleus=0.5)


def test_a_distribution_is_that_of_its_definition():
    ids, p = runtime.Sampler(top_k=3, temperature=0.5, top_p=1, min_p=0).distribution(ROW)
    wanted = np.exp(ROW[[1, 3, 2]].astype(float) / 0.5)
    assert ids.tolist() == [1, 3, 2] and ids.dtype == np.int32
    np.testing.assert_allclose(p, wanted / wanted.sum(), rtol=1e-12)
    once = runtime.Sampler(presence_penalty=2, temperature=0)
    assert once.distribution(ROW, tokens=[1, 3])[0].tolist() == [2]
    assert once.distribution(ROW, tokens=[1, 3], allowed=[0, 4])[0].tolist() == [0]
    with pytest.raises(runtime.NumericError):
        once.distribution(ROW, allowed=[])
    with pytest.raises(ValueError, match="allowed"):
        once.distribution(ROW, allowed=[5])


def test_draws_are_those_of_sample():
    sampler = runtime.Sampler(seed=4, stream=2, xtc_probability=0.5)
    for position in range(50):
        drawn = runtime.sample(ROW, seed=4, stream=2, xtc_probability=0.5, position=position)
        assert sampler.draw(ROW, position=position) == drawn
    bias = {0: 50.0, 1: False}
    assert runtime.sample(ROW, logit_bias=bias) == 0
    assert runtime.sample(ROW, tokens=[1], presence_penalty=2, temperature=0) == 3


def test_mirostat_moves_its_bound():
    sampler = runtime.Sampler(mirostat=2, mirostat_tau=1.5)
    assert sampler.mu == 3.0
    ids, p = sampler.distribution(ROW)
    token = sampler.draw(ROW)
    surprise = -math.log2(p[ids.tolist().index(token)])
    assert sampler.mu == pytest.approx(3.0 - 0.1 * (surprise - 1.5), abs=1e-12)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    import subprocess

    from programs import BUILD

    folder = tmp_path_factory.mktemp("sampling") / "model"
    subprocess.run([BUILD / "write_random_model", folder, "linear"], check=True)
    return runtime.Model(folder)


def test_streams_take_all_options(model):
    plain = model.generate("ab", max_tokens=30, temperature=0)
    once = model.generate(
        "ab", max_tokens=30, temperature=0, presence_penalty=2, repeat_penalty=10, repeat_last_n=-1
    )
    assert plain != once
    limited = model.generate("ab", max_tokens=9, logit_bias={ord("q"): 100}, samplers="top_k")
    assert limited == "q" * 9
    with pytest.raises(ValueError, match="logit_bias"):
        model.generate("ab", logit_bias={model.tokenizer_size: 1})
    with pytest.raises(TypeError, match="nucleus"):
        model.generate("ab", nucleus=0.5)
    assert set(model.sampling) == {row.name for row in runtime.sampling_options()}


def test_breakers_are_tokens_of_the_model(model):
    """A repetition reaches over no breaker: the tokens after it are too few."""
    tokens = list(b"xyz:xyz:xyz")
    options = {"dry_multiplier": 5, "dry_allowed_length": 4, "temperature": 1}
    row = np.zeros(256, np.float32)
    row[ord(":")] = 1
    free = runtime.Sampler(model, dry_sequence_breakers=[""], **options)
    bound = runtime.Sampler(model, **options)
    none = runtime.Sampler(**options)  # without a tokenizer there are no breakers
    # ":" would continue "xyz:xyz", of 7 tokens.
    assert free.distribution(row, tokens=tokens)[0][0] != ord(":")
    assert bound.distribution(row, tokens=tokens)[0][0] == ord(":")
    assert none.distribution(row, tokens=tokens)[0][0] != ord(":")


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
