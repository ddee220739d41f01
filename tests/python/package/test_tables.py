"""The tables of the C++ side, and what is derived from them: nothing in a row is
repeated by hand, and the pages list what the rows list."""

import inspect
import pathlib
import re

import pytest
import torch

from tarn import _tables as tables
from tarn import feature_maps, models, nn, ops
from tarn.attention._linear import DENOMINATORS
from tarn.ops import _checks as checks

DOCS = pathlib.Path(__file__).resolve().parents[3] / "docs"


def rows_of(page, header):
    """Cells of the table under a header row."""
    lines = (DOCS / page).read_text().splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith(header)) + 2
    rows = []
    for line in lines[first:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    return rows


def names_in(cell):
    return re.findall(r"`([^`]+)`", cell)


def test_feature_maps_are_rows():
    table = tables.feature_maps()
    assert list(table)[0] == "elu1" and table["rff"]["signed"] and table["grf"]["uses_omega"]
    assert checks.FEATURE_MAPS == tables.elementwise_maps()
    assert tables.words_of("feature_map") == tuple(table)
    assert DENOMINATORS == checks.DENOMINATORS == tables.words_of("denominator")


@pytest.mark.parametrize("name", tables.feature_maps())
def test_every_row_is_a_map_of_python(name):
    row = tables.feature_maps()[name]
    made = feature_maps.by_name(name)(6)
    x = torch.randn(2, 5, 3, 6)
    features = made(x)
    assert features.shape == (2, 5, 3, ops.feature_width(name, 6))
    assert made.arguments()["feature_map"] == name
    assert hasattr(made, "omega") == row["uses_omega"]
    assert hasattr(made, "stabilise") == row["can_stabilise"]
    if row["elementwise"]:
        assert torch.equal(features, torch.ops.tarn.elementwise_features(x, name))
        model = models.LanguageModel(
            vocab_size=5, d_model=12, n_layers=1, n_heads=2, feature_map=name
        )
        assert model(torch.zeros(1, 4, dtype=torch.int64)).isfinite().all()
        assert nn.LinearAttention(12, 2, feature_map=name)(torch.randn(1, 4, 12)).shape == (
            1,
            4,
            12,
        )


def test_a_map_without_a_class_is_one_by_its_row(monkeypatch):
    """A new row of an elementwise map needs nothing in Python."""
    from tarn.feature_maps import selection

    wanted = feature_maps.by_name("relu2")(4)
    monkeypatch.delitem(selection._CLASSES, "relu2")
    made = feature_maps.by_name("relu2")(4)
    assert type(made) is feature_maps.ElementwiseFeatureMap and made.signed == wanted.signed
    x = torch.randn(3, 4, requires_grad=True)
    assert torch.equal(made(x), wanted(x))
    (grad,) = torch.autograd.grad(made(x).sum(), x)
    assert torch.equal(grad, torch.autograd.grad(wanted(x).sum(), x)[0])
    assert made.arguments() == wanted.arguments() == {"feature_map": "relu2"}
    with pytest.raises(ValueError, match="feature_map: want one of 'elu1', .*'grf', got 'cos'"):
        feature_maps.by_name("cos")
    with pytest.raises(ValueError, match="elementwise_features: name: want a map of single"):
        torch.ops.tarn.elementwise_features(x, "favor")


def test_keys_and_their_defaults():
    fields = tables.config_fields()
    finished = models.finish_config()
    assert list(fields) == [name for name in finished if name != "format_version"]
    for name, row in fields.items():
        assert row["default"] is None or row["default"] == finished[name], name
        if row["kind"] == "integer":
            assert row["min"] <= row["max"] and str(row["max"]) in row["wanted"]
        elif row["kind"] == "choice":
            assert row["default"] is None or row["default"] in row["words"]
    wanted = re.escape(fields["topk"]["wanted"])
    with pytest.raises(ValueError, match=f"topk: want {wanted}, got 0"):
        models.finish_config(topk=0)
    assert set(nn._encoder._ACTIVATIONS) == set(tables.words_of("activation"))
    assert set(nn._encoder._NORMS) == set(tables.words_of("norm"))


# Keys of a small model of every mixer.
SMALL = dict(
    vocab_size=7, d_model=12, n_layers=2, n_heads=2, local_context=4, max_sequence_length=9
)
LINEAR = [
    dict(feature_map=name, denominator=denominator)
    for name in ("elu1", "poly2", "favor", "rff")
    for denominator in ("exact", "signed", "none")
]
STATEFUL = [
    *(dict(attention=name) for name in tables.recurrent_mixers()),
    *(dict(attention=name, feed_forward="channel-mix") for name in tables.recurrent_mixers()),
    *LINEAR,
]


@pytest.mark.parametrize("keys", STATEFUL, ids=lambda keys: "-".join(keys.values()))
def test_states_of_python_are_those_of_the_specs(keys):
    model = models.LanguageModel(**SMALL, **keys).eval()
    _, state = model.prefill(torch.zeros(3, 6, dtype=torch.int64))
    for part, tensors in zip(state, tables.layer_states(model.config), strict=True):
        assert part.kind == model.config["attention"]
        # The sums that the signed denominator keeps have a name of their own.
        names = {"norm_sums": "extra"}
        given = {name: tuple(t.shape) for name, t in part.tensors.items()}
        for row in tensors:
            shape = given.pop(names.get(row["name"], row["name"]))
            wanted = tuple(row["shape"])
            assert shape == ((3, shape[1], *wanted) if row["grows"] else (3, *wanted))
            assert part.facts.get("initial", {}).get(row["name"], 0.0) == row["initial"]
        assert not given
    fresh = [part.reset([0, 1, 2]) for part in state]
    for part, tensors in zip(fresh, tables.layer_states(model.config), strict=True):
        for row in tensors:
            held = part.tensors.get(row["name"])
            assert held is None or row["grows"] or (held == row["initial"]).all()


@pytest.mark.parametrize("name", tables.mixers())
def test_a_mixer_steps_where_its_row_says_so(name):
    model = (
        models.LanguageModel(**SMALL, attention=name) if tables.mixers()[name]["causal"] else None
    )
    if model is None:
        with pytest.raises(ValueError, match="attention"):
            models.LanguageModel(**SMALL, attention=name)
    elif name in tables.recurrent_mixers():
        assert model.step(torch.zeros(2, dtype=torch.int64))[0].shape == (2, 7)
    else:
        names = ", ".join(tables.recurrent_mixers()).replace("linear", "causal-linear", 1)
        with pytest.raises(ValueError, match=re.escape(f"recurrent form ({names}), got")):
            model.step(torch.zeros(2, dtype=torch.int64))


def test_the_page_of_feature_maps_lists_the_rows():
    table = tables.feature_maps()
    rows = rows_of("feature-maps.md", "| name | phi(x) | C |")
    named = [names_in(row[0]) for row in rows]
    assert [names[0] for names in named if names] == list(table)
    for cells, names in zip(rows, named, strict=True):
        if not names:
            continue
        row = table[names[0]]
        if row["signed"]:
            assert cells[4].startswith("signed"), cells
        if row["elementwise"]:
            assert cells[2] == "K" and cells[3] == "-", cells
        if row["uses_omega"]:
            factor = "" if row["features_per_column"] == 1 else f"{row['features_per_column']} "
            constant = " + 1" if row["constant_features"] else ""
            assert cells[2] == f"{factor}n_freq{constant}", cells
    text = (DOCS / "feature-maps.md").read_text()
    maps = ", ".join(f"`{name}`" for name in tables.elementwise_maps())
    assert f"{maps} act entry by entry" in text


def test_the_page_of_the_format_lists_the_keys():
    fields = tables.config_fields()
    sections = {}
    for cells in rows_of("model-format.md", "| section | keys"):
        names = names_in(cells[0])
        parts = cells[1].split(";") if len(names) > 1 else [cells[1]]
        for section, part in zip(names, parts, strict=True):
            sections[section] = re.sub(r"\(`[^)]*\)", "", part)
    assert set(sections) == {row["section"] for row in fields.values()} - {"layers"}
    for section, text in sections.items():
        keys = [row["key"] for row in fields.values() if row["section"] == section]
        assert sorted(names_in(text)) == sorted(keys), section
    listed = {}
    for header in ("| key | values | meaning |", "| key | values | default | meaning |"):
        for cells in rows_of("model-format.md", header):
            for name in names_in(cells[0]):
                listed[name] = cells[1]
    later = (DOCS / "model-format.md").read_text()
    for name, row in fields.items():
        if name not in listed:
            listed[name] = next(
                line.split("|")[2] for line in later.splitlines()
                if line.startswith("|") and name in names_in(line.split("|")[1])
            )  # fmt: skip
        assert name in listed, name
        if row["kind"] == "choice":
            assert names_in(listed[name]) == row["words"] or set(names_in(listed[name])) == set(
                row["words"]
            ), name


def test_no_list_of_python_repeats_a_row():
    """Modules that listed names by hand now read the tables."""
    from tarn.models import _config, _stack

    for module in (checks, _stack, _config):
        source = inspect.getsource(module)
        assert '"relu2"' not in source and '"smoothed-rff"' not in source, module
