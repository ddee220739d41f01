"""tarn against what fast-transformers 0.4.0 computed (tests/golden/fast_transformers, written by
make_goldens.py there), under the one switch `compat` where definitions differ.
Rows of padded queries are left out: they mean nothing in either package."""

import json
import pathlib

import numpy as np
import pytest
import torch

import tarn
from tarn import attention, builders, feature_maps, masking
from tarn.causal_product import CausalDotProduct, causal_dot_product

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "golden" / "fast_transformers"
FILES = {path.stem: path for path in FOLDER.glob("*/*.npz")}
# float32 sums in another order; entries are of size 1.
TOLERANCE = dict(atol=1e-5, rtol=1e-5)
KINDS_WITH_COMPAT = ("LinearAttention", "CausalLinearAttention", "ReformerAttention")


class Golden:
    def __init__(self, name):
        file = np.load(FILES[name])
        self.options = json.loads(str(file["options"]))
        self.output = torch.from_numpy(file["output"])
        self.inputs, self.weights = {}, {}
        for key in file.files:
            group, _, rest = key.partition("/")
            if rest:
                getattr(self, group)[rest] = torch.from_numpy(file[key])

    def lengths(self, key, padded):
        values = self.options.get(key)
        return None if values is None else masking.LengthMask(torch.tensor(values), padded)


def names(*prefixes, without=()):
    return [
        n for n in sorted(FILES) if n.startswith(prefixes) and not n.startswith(without or ("?",))
    ]


OTHERS = ("map_", "mask_", "encoder_", "decoder_", "recurrent_", "causal_product")


def compare(given, golden, lengths=None):
    wanted = golden.output
    assert given.shape == wanted.shape
    for row, length in enumerate(lengths or [wanted.shape[1]] * wanted.shape[0]):
        torch.testing.assert_close(given[row, :length], wanted[row, :length], **TOLERANCE)


def test_every_file_is_compared():
    found = names("")
    assert len(found) == 45
    kinds = {Golden(n).options["class"] for n in names("", without=OTHERS)}
    assert len(kinds) == 10


@pytest.mark.parametrize("name", names("", without=OTHERS))
def test_attention(name):
    golden = Golden(name)
    options = golden.options
    q, k, v = (golden.inputs[key] for key in ("queries", "keys", "values"))
    arguments = dict(options["arguments"])
    if options["class"] in KINDS_WITH_COMPAT:
        arguments["compat"] = True
    if options["class"] == "ConditionalFullAttention":
        other = attention.LinearAttention(q.shape[3], compat=True)
        arguments["other_attention"] = other
    module = getattr(attention, options["class"])(**arguments).eval()
    module.load_state_dict(golden.weights)
    mask = {
        "full": masking.FullMask(q.shape[1], k.shape[1]),
        "causal": masking.TriangularCausalMask(q.shape[1]),
        "dense": masking.FullMask(golden.inputs["mask"]) if "mask" in golden.inputs else None,
    }[options["mask"]]
    out = module(
        q,
        k,
        v,
        mask,
        golden.lengths("lengths", q.shape[1]),
        golden.lengths("key_lengths", k.shape[1]),
    )
    compare(out, golden, options["lengths"])


@pytest.mark.parametrize("name", names("map_"))
def test_feature_map(name):
    golden = Golden(name)
    options = golden.options
    if options["class"] == "elu":
        feature_map = feature_maps.elu_feature_map(options["query_dims"])
    else:
        cls = getattr(feature_maps, options["class"])
        feature_map = cls(options["query_dims"], **options["arguments"])
    feature_map.compat = True
    feature_map.load_state_dict(golden.weights)
    torch.testing.assert_close(feature_map(golden.inputs["x"]), golden.output, **TOLERANCE)


def test_causal_product():
    golden = Golden("causal_product")
    inputs = [golden.inputs[key] for key in "QKV"]
    for product in (causal_dot_product, CausalDotProduct.apply):
        torch.testing.assert_close(product(*inputs), golden.output, **TOLERANCE)


def built(golden):
    options = golden.options
    builder = getattr(builders, options["builder"]).from_kwargs(**options["settings"])
    builder.compat = True
    model = builder.get().eval()
    assert list(model.state_dict()) == list(golden.weights)  # names, and their order
    model.load_state_dict(golden.weights)
    return model


@pytest.mark.parametrize("name", names("encoder_"))
def test_encoder(name):
    golden = Golden(name)
    model, x = built(golden), golden.inputs["x"]
    mask = masking.TriangularCausalMask(x.shape[1]) if golden.options["causal"] else None
    out = model(x, attn_mask=mask, length_mask=golden.lengths("lengths", x.shape[1]))
    compare(out, golden, golden.options["lengths"])


@pytest.mark.parametrize("name", names("decoder_"))
def test_decoder(name):
    golden = Golden(name)
    x, memory = golden.inputs["x"], golden.inputs["memory"]
    out = built(golden)(
        x,
        memory,
        x_mask=masking.TriangularCausalMask(x.shape[1]),
        x_length_mask=golden.lengths("lengths", x.shape[1]),
        memory_length_mask=golden.lengths("key_lengths", memory.shape[1]),
    )
    compare(out, golden, golden.options["lengths"])


@pytest.mark.parametrize("name", names("recurrent_encoder"))
def test_recurrent_encoder(name):
    golden = Golden(name)
    model, x = built(golden), golden.inputs["x"]
    state, rows = None, []
    for token in x.unbind(1):
        out, state = model(token, state=state)
        rows.append(out)
    compare(torch.stack(rows, 1), golden)


@pytest.mark.parametrize("name", names("recurrent_decoder"))
def test_recurrent_decoder(name):
    golden = Golden(name)
    model, memory = built(golden), golden.inputs["memory"]
    mask = golden.lengths("key_lengths", memory.shape[1])
    state, rows = None, []
    for token in golden.inputs["x"].unbind(1):
        out, state = model(token, memory, memory_length_mask=mask, state=state)
        rows.append(out)
    compare(torch.stack(rows, 1), golden)


@pytest.mark.parametrize("name", names("mask_"))
def test_mask(name):
    golden = Golden(name)
    kept = golden.output
    mask = {
        "FullMask": lambda: masking.FullMask(kept),
        "LengthMask": lambda: masking.LengthMask(golden.inputs["lengths"], kept.shape[1]),
        "TriangularCausalMask": lambda: masking.TriangularCausalMask(kept.shape[0]),
    }[golden.options["class"]]()
    assert torch.equal(mask.bool_matrix, kept)
    assert mask.lower_triangular == golden.options["lower_triangular"]
    for key, wanted in golden.inputs.items():
        assert torch.equal(getattr(mask, key), wanted)


def test_compat_is_what_makes_them_equal():
    """Without the switch the linear kinds differ, by no more than the effect of eps."""
    golden = Golden("linear_full")
    q, k, v = (golden.inputs[key] for key in ("queries", "keys", "values"))
    mask = masking.LengthMask(torch.tensor(golden.options["key_lengths"]), k.shape[1])
    arguments = (q, k, v, None, None, mask)
    given = [
        attention.LinearAttention(q.shape[3], compat=compat)(*arguments) for compat in (False, True)
    ]
    assert not torch.equal(*given)
    torch.testing.assert_close(*given, atol=1e-5, rtol=1e-5)
    assert tarn.__version__
