"""Where data are looked for, and what is said when they are not there."""

import pathlib

import pytest

from experiments.core import data
from experiments.core.types import ExperimentError

IDX = data.SETS["mnist"].files


def _fill(folder, names, suffix=""):
    folder.mkdir(parents=True)
    for name in names:
        (folder / (name + suffix)).write_bytes(name.encode())
    return folder


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """No checkout neighbours and no Debian package."""
    monkeypatch.setattr(data, "ROOT", tmp_path / "checkout" / "tarn")
    monkeypatch.setattr(
        data,
        "SETS",
        {
            name: data.DataSet(
                one.name, one.title, one.files, str(tmp_path / "debian") if one.debian else ""
            )
            for name, one in data.SETS.items()
        },
    )
    return tmp_path


def test_order_of_places(nowhere, monkeypatch):
    debian = _fill(nowhere / "debian", IDX, ".gz")
    assert data.find("fashion-mnist", {}) == ("fashion-mnist", debian)
    next_to_checkout = _fill(nowhere / "checkout" / "shared" / "data" / "fashion-mnist", IDX)
    assert data.find("fashion-mnist", {})[1] == next_to_checkout
    monkeypatch.setenv("TARN_DATA", str(nowhere / "mine"))
    mine = _fill(nowhere / "mine" / "fashion-mnist", IDX)
    assert data.find("fashion-mnist", {})[1] == mine
    given = _fill(nowhere / "given", IDX)
    assert data.find("fashion-mnist", {"fashion-mnist": given})[1] == given


def test_alternatives(nowhere):
    _fill(nowhere / "debian", IDX)
    assert data.find("mnist|fashion-mnist", {})[0] == "fashion-mnist"
    given = _fill(nowhere / "given", IDX)
    assert data.find("mnist|fashion-mnist", {"mnist": given}) == ("mnist", given)


def test_error_names_all_that_was_looked_at(nowhere, monkeypatch):
    monkeypatch.setenv("TARN_DATA", str(nowhere / "mine"))
    half = _fill(nowhere / "mine" / "mnist", IDX[:3])
    with pytest.raises(ExperimentError) as caught:
        data.find("mnist|fashion-mnist", {})
    text = str(caught.value)
    assert caught.value.code == 3 and "--data mnist=PATH" in text
    assert f"{half}: lacks {IDX[3]}" in text
    for place in ("mine/fashion-mnist", "shared/data/mnist", "shared/data/fashion-mnist", "debian"):
        assert str(nowhere / place).replace("shared", "checkout/shared") in text or (
            str(nowhere / place) in text
        )


def test_a_given_path_is_the_only_one(nowhere):
    """A typing error must not end with other data than those asked for."""
    _fill(nowhere / "debian", IDX)
    with pytest.raises(ExperimentError, match="not there"):
        data.find("mnist|fashion-mnist", {"mnist": nowhere / "typo"})


def test_packed_and_plain_files(nowhere):
    folder = _fill(nowhere / "given", IDX, ".gz")
    (folder / IDX[0]).write_bytes(b"plain")
    assert data.file("mnist", folder, IDX[0]) == folder / IDX[0]
    assert data.file("mnist", folder, IDX[1]) == folder / (IDX[1] + ".gz")
    with pytest.raises(ExperimentError, match="want other"):
        data.file("mnist", folder, "other")
    assert data.file("dna", folder / IDX[0], "NC_008253.fna") == folder / IDX[0]


def test_record_has_digests_and_no_folders(nowhere):
    folder = _fill(nowhere / "given", IDX)
    (folder / "SOURCE.txt").write_text("not data")
    record = data.describe("mnist", {"mnist": folder})
    assert record["name"] == "mnist" and len(record["files"]) == 4
    assert str(nowhere) not in str(record)
    one = data.describe("cifar10", {"cifar10": folder / IDX[0]})
    assert one["files"][0]["file"] == IDX[0]
    (folder / IDX[0]).write_bytes(b"changed")
    assert data.describe("mnist", {"mnist": folder}) != record


def test_empty_folder_is_no_data(nowhere):
    (nowhere / "given").mkdir()
    with pytest.raises(ExperimentError, match="is empty"):
        data.find("fsdd", {"fsdd": nowhere / "given"})


def test_every_name_has_a_title():
    assert all(one.title and name == one.name for name, one in data.SETS.items())
    assert all(isinstance(pathlib.Path(one.debian), pathlib.Path) for one in data.SETS.values())
