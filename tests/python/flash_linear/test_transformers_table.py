"""Every recurrent text model of the installed transformers is covered by
tarn.accelerate_transformers(), or docs/migration.md says why not."""

import importlib.util
import pathlib
import re

import pytest
from transformers_table import MODELS

if importlib.util.find_spec("transformers") is None:
    pytest.skip("transformers is not installed", allow_module_level=True)
PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "migration.md"
FOLDERS = pathlib.Path(importlib.util.find_spec("transformers").origin).parent / "models"
# A model's file that holds states of a recurrence or of a convolution over time says so by
# one of these: its mask, its word for generate, or the names of its states.
STATES = re.compile(
    r"\bcreate_recurrent_attention_mask\b|\b_is_stateful = True\b"
    r"|\b(?:conv|recurrent|rnn|ssm)_states?\b"
)


def recurrent():
    files = FOLDERS.glob("*/modeling_*.py")
    return {file.parent.name for file in files if STATES.search(file.read_text())}


def tables():
    """The tables of the page's section: a list of rows for each, without the head."""
    section = PAGE.read_text().split("\n## transformers' own models\n")[1].split("\n## ")[0]
    found = re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE)
    return [table.splitlines()[2:] for table in found]


def folders(rows):
    return {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}


def test_the_search_finds_models():
    assert {"mamba", "minimax", "recurrent_gemma", "rwkv", "xlstm", "zaya"} <= recurrent()
    assert not {"llama", "qwen3", "gemma2"} & recurrent()


def test_every_recurrent_model_is_named():
    named = [folders(rows) for rows in tables()]
    missing = recurrent() - set().union(*named)
    assert not missing, f"want a row of docs/migration.md for each of {sorted(missing)}"


def test_covered_models_are_tested():
    covered, holders, without = (folders(rows) for rows in tables())
    assert covered == set(MODELS)
    assert not covered & without
    assert all((FOLDERS / name).is_dir() for name in covered | holders | without)


def test_replaced_functions_are_named():
    from tarn._transformers_methods import TABLE

    rows = {row.split("|")[1].strip(" `"): row for row in tables()[0]}
    for folder, replaced in TABLE.items():
        for path in replaced:
            assert f"`{path}`" in rows[folder].split("|")[3]
