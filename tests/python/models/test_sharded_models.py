"""Model directories with sharded weights: load_model and the runtime."""

import json
import pathlib

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import tarn
from tarn import models

SMALL = dict(vocab_size=256, d_model=16, n_layers=2, n_heads=2, d_ff=20, max_positions=16)
INDEX = "model.safetensors.index.json"


def shard_of(number: int, count: int = 2) -> str:
    return f"model-{number:05}-of-{count:05}.safetensors"


@pytest.fixture
def folder(tmp_path):
    """A model in two shards; `whole` next to it has one file."""
    tarn.save_model(models.LanguageModel(**SMALL), tmp_path / "whole")
    tarn.save_model(tarn.load_model(tmp_path / "whole"), tmp_path / "shards")
    split(tmp_path / "shards")
    return tmp_path / "shards"


def split(folder: pathlib.Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    shards = {name: shard_of(1 + i % 2) for i, name in enumerate(names)}
    for shard in set(shards.values()):
        save_file({n: t for n, t in tensors.items() if shards[n] == shard}, folder / shard)
    write_index(folder, shards)
    (folder / "model.safetensors").unlink()


def write_index(folder: pathlib.Path, shards: dict) -> None:
    document = {"metadata": {"total_size": 1}, "weight_map": shards}
    (folder / INDEX).write_text(json.dumps(document))


def read_index(folder: pathlib.Path) -> dict:
    return json.loads((folder / INDEX).read_text())["weight_map"]


def test_shards_are_the_model(folder):
    whole, shards = tarn.load_model(folder.parent / "whole"), tarn.load_model(folder)
    assert whole.state_dict().keys() == shards.state_dict().keys()
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, shards.state_dict()[name]), name
    runtime = pytest.importorskip("tarn.runtime", exc_type=ImportError)
    tokens = [3, 1, 4, 1, 5]
    opened = [runtime.Model(path) for path in (folder.parent / "whole", folder)]
    np.testing.assert_array_equal(*(model.score(model.state(), tokens) for model in opened))


def test_a_state_belongs_to_the_model_however_it_is_stored(folder, tmp_path):
    runtime = pytest.importorskip("tarn.runtime", exc_type=ImportError)
    whole, shards = runtime.Model(folder.parent / "whole"), runtime.Model(folder)
    state = whole.state()
    whole.prefill(state, [1, 2, 3])
    state.save(tmp_path / "state")
    assert shards.load_state(tmp_path / "state").position == 3


def refused(folder: pathlib.Path, kind: type = ValueError) -> str:
    """The message of load_model; the runtime must refuse the directory as well."""
    with pytest.raises(kind) as error:
        tarn.load_model(folder)
    runtime = pytest.importorskip("tarn.runtime", exc_type=ImportError)
    with pytest.raises((runtime.FormatError, OSError)):
        runtime.Model(folder)
    return str(error.value)


def test_a_missing_shard_is_named(folder):
    (folder / shard_of(2)).unlink()
    assert shard_of(2) in refused(folder, OSError)


def test_tensors_are_where_the_index_finds_them(folder):
    shards = read_index(folder)
    name = next(iter(shards))
    other = {shard_of(1): shard_of(2), shard_of(2): shard_of(1)}
    write_index(folder, {**shards, name: other[shards[name]]})
    assert name in refused(folder)
    write_index(folder, {n: s for n, s in shards.items() if n != name})
    assert name in refused(folder)
    write_index(folder, {**shards, "surplus": shard_of(1)})
    assert "surplus" in refused(folder)
    # In both shards.
    write_index(folder, shards)
    tensors = load_file(folder / other[shards[name]])
    save_file(tensors | {name: torch.zeros(1)}, folder / other[shards[name]])
    assert name in refused(folder)


@pytest.mark.parametrize("name", ["../whole/model.safetensors", "/etc/passwd", "..", "", "x" * 300])
def test_names_stay_in_the_folder(folder, name):
    shards = read_index(folder)
    write_index(folder, {**shards, next(iter(shards)): name})
    assert "want the name of a file in the same folder" in refused(folder)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"weight_map": {}}', '{"weight_map": {"a": 1}}', '{"a": 1, "a": 1}']
)
def test_bad_indexes_are_refused(folder, text):
    (folder / INDEX).write_text(text)
    assert INDEX in refused(folder)


def test_a_single_file_wins(folder):
    tensors = load_file(folder.parent / "whole" / "model.safetensors")
    save_file({n: torch.zeros_like(t) for n, t in tensors.items()}, folder / "model.safetensors")
    assert all(not t.any() for t in tarn.load_model(folder).state_dict().values())
