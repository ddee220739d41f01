"""A model with sharded weights: the same model, and faults that name their file."""

import json
import shutil

import plain_model
import plain_shards
import pytest


@pytest.fixture
def pair(tmp_path):
    """A model in one file, and the same in three shards."""
    plain_model.write_model(tmp_path / "one", seed=4, positions="none")
    shutil.copytree(tmp_path / "one", tmp_path / "shards")
    plain_shards.split(tmp_path / "shards", 3)
    return tmp_path / "one", tmp_path / "shards"


def test_it_is_the_same_model(tarn, pair):
    options = ("--prompt", "A", "--max-tokens", "20", "--temperature", "0")
    outputs = [tarn("generate", folder, *options) for folder in pair]
    assert [done.returncode for done in outputs] == [0, 0], outputs[1].stderr
    assert outputs[0].stdout == outputs[1].stdout
    facts = [json.loads(tarn("info", folder, "--json").stdout) for folder in pair]
    assert facts[0] == facts[1]
    verified = [tarn("verify", folder) for folder in pair]
    assert [done.returncode for done in verified] == [0, 0], verified[1].stdout
    # All but the folder's name, which comes first.
    assert len({done.stdout.split(b": ", 1)[1] for done in verified}) == 1


def test_faults_name_the_shard(tarn, pair):
    _, folder = pair
    first = folder / "model-00001-of-00003.safetensors"
    data = bytearray(first.read_bytes())
    data[-4:] = b"\x00\x00\xc0\x7f"  # NaN
    first.write_bytes(data)
    done = tarn("verify", folder)
    assert done.returncode == 3
    assert str(first).encode() in done.stdout and b"1 NaN or infinite" in done.stdout
    first.unlink()
    for command in ("verify", "info", "generate"):
        done = tarn(command, folder)
        assert done.returncode == 3
        assert str(first).encode() in done.stdout + done.stderr


@pytest.mark.parametrize("name", ["../one/model.safetensors", "/etc/passwd", ""])
def test_an_index_stays_in_its_folder(tarn, pair, name):
    _, folder = pair
    index = folder / "model.safetensors.index.json"
    document = json.loads(index.read_text())
    tensor = next(iter(document["weight_map"]))
    document["weight_map"][tensor] = name
    index.write_text(json.dumps(document))
    done = tarn("verify", folder)
    assert done.returncode == 3
    assert b"the name of a file in the same folder" in done.stdout
