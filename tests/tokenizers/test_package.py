"""The same ids and texts as the `tokenizers` package: for each case of cases.py and for
published tokenizers, where there are any, over 2,000 strings and over long ones."""

import json

import pytest
from cases import GOLDEN, PATTERNS, all_cases, load_models
from package import PROGRAM, compare, published
from strings import make_long, make_strings

if not PROGRAM.exists():
    pytest.skip(f"no {PROGRAM} (TARN_BUILD_DIR names the build)", allow_module_level=True)

CASES = all_cases(load_models())
PUBLISHED = published()


@pytest.mark.parametrize("name", CASES)
def test_small_tokenizers(name, tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps(CASES[name]))
    compare(tmp_path / "tokenizer.json", make_strings())


def test_strings_are_those_of_the_goldens():
    assert json.loads((GOLDEN / "strings.json").read_text()) == make_strings()


@pytest.mark.parametrize(
    "name", ["byte_level", "deepseek", "o200k", "llama2", "metaspace_always_split", "unigram_bytes"]
)
def test_long_texts(name, tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps(CASES[name]))
    compare(tmp_path / "tokenizer.json", make_long())


@pytest.mark.parametrize("name", PATTERNS)
def test_more_strings_for_each_pattern(name, tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps(CASES[name]))
    compare(tmp_path / "tokenizer.json", make_strings(8000, 11))


@pytest.mark.skipif(not PUBLISHED, reason="no published tokenizers (TARN_DATA, TARN_PUBLISHED)")
@pytest.mark.parametrize("path", PUBLISHED, ids=str)
def test_published_tokenizers(path):
    compare(path, make_strings())
