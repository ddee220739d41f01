"""Weights of other encoders, in and out."""

import pytest
import torch

from tarn import weight_mapper as wm


def torch_encoder(norm_first, activation, final_norm):
    layer = torch.nn.TransformerEncoderLayer(
        32, 4, 48, batch_first=True, norm_first=norm_first, activation=activation
    )
    norm = torch.nn.LayerNorm(32) if final_norm else None
    encoder = torch.nn.TransformerEncoder(layer, 2, norm, enable_nested_tensor=False)
    for parameter in encoder.parameters():  # copies of one layer would hide mix-ups
        torch.nn.init.uniform_(parameter, -0.5, 0.5)
    return encoder.eval()


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("final_norm", [False, True])
def test_torch_encoder_and_back(norm_first, activation, final_norm):
    encoder = torch_encoder(norm_first, activation, final_norm)
    built = wm.encoder_from_pytorch(encoder)
    x = torch.randn(2, 9, 32)
    with torch.no_grad():
        torch.testing.assert_close(built(x), encoder(x), rtol=0, atol=1e-5)
    back = wm.to_pytorch(built.state_dict())
    assert back.keys() == encoder.state_dict().keys()
    for name, tensor in encoder.state_dict().items():
        assert torch.equal(back[name], tensor)


def test_bert_layout_and_back():
    ours = {}
    for i in range(2):
        for part in ("query", "key", "value", "out"):
            ours[f"layers.{i}.attention.{part}_projection.weight"] = torch.randn(8, 8)
            ours[f"layers.{i}.attention.{part}_projection.bias"] = torch.randn(8)
        for part in ("linear1", "linear2", "norm1", "norm2"):
            ours[f"layers.{i}.{part}.weight"] = torch.randn(8)
            ours[f"layers.{i}.{part}.bias"] = torch.randn(8)
    theirs = wm.to_bert_encoder(ours)
    assert "layer.1.attention.self.query.weight" in theirs
    assert "layer.0.attention.output.LayerNorm.bias" in theirs
    assert "layer.0.intermediate.dense.weight" in theirs
    again = wm.HugginfaceBertEncoderMapper().map(theirs)
    assert again.keys() == ours.keys()
    assert all(torch.equal(again[name], ours[name]) for name in ours)
    with pytest.raises(ValueError, match="final norm"):
        wm.to_bert_encoder({"norm.weight": torch.ones(3)})


def bert_layer(weights, x):
    """One BERT layer by its definition, float64."""

    def affine(name, y):
        return y @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def norm(name, y):
        return torch.nn.functional.layer_norm(
            y, y.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"], 1e-12
        )

    def heads(y):
        return y.unflatten(-1, (4, -1)).transpose(1, 2)

    q, k, v = (heads(affine(f"layer.0.attention.self.{p}", x)) for p in ("query", "key", "value"))
    p = torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, -1)
    a = affine("layer.0.attention.output.dense", (p @ v).transpose(1, 2).flatten(2))
    x = norm("layer.0.attention.output.LayerNorm", x + a)
    h = torch.nn.functional.gelu(affine("layer.0.intermediate.dense", x))
    return norm("layer.0.output.LayerNorm", x + affine("layer.0.output.dense", h))


def test_bert_layer_computes_the_same():
    from tarn.builders import TransformerEncoderBuilder

    encoder = TransformerEncoderBuilder.from_kwargs(
        n_layers=1,
        n_heads=4,
        query_dimensions=8,
        value_dimensions=8,
        feed_forward_dimensions=40,
        activation="gelu",
        final_normalization=False,
        norm_eps=1e-12,
    ).get()
    weights = {name: torch.rand_like(t) - 0.5 for name, t in encoder.state_dict().items()}
    theirs = wm.to_bert_encoder(weights)
    encoder.load_state_dict(wm.HugginfaceBertEncoderMapper().map(theirs))
    x = torch.randn(2, 7, 32)
    wanted = bert_layer({name: t.double() for name, t in theirs.items()}, x.double())
    with torch.no_grad():
        given = encoder.eval()(x).double()
    torch.testing.assert_close(given, wanted, rtol=0, atol=1e-4)


def test_rules():
    assert wm.NotRule(wm.IdentityRule()).matches("x") is False
    both = wm.OrRule(wm.RegexRule("a", "b"), wm.RegexRule("c", "d"))
    assert both.matches("cat") and not both.matches("x")
    assert both.apply("cat", 1) == [("dbt", 1)]
    first, second = wm.SimpleMapper(), wm.SimpleMapper()
    assert first._rules is not second._rules and len(second._rules) == 1
    state = {"a.weight": 1, "b.weight": 2}
    assert wm.SimpleMapper([wm.DropRule("^a")]).map(state) == {"b.weight": 2}
    assert wm.SimpleMapper([wm.RegexRule("b", "c")], add_identity=False).map(state) == {
        "c.weight": 2
    }
    assert state == {"a.weight": 1, "b.weight": 2}
    with pytest.raises(ValueError, match="twice"):
        wm.SimpleMapper([wm.RegexRule("^[ab]", "c")]).map(state)
    with pytest.raises(ValueError, match="three"):
        wm.PytorchMapper().map({"layers.0.self_attn.in_proj_weight": torch.ones(4, 2)})


def test_rules_of_a_mapper_serve_others():
    class WithHead(wm.SimpleMapper):
        def __init__(self):
            super().__init__(wm.HugginfaceBertEncoderMapper.RULES + [wm.RegexRule("^cls", "head")])

    mapped = WithHead().map({"layer.3.intermediate.dense.bias": 1, "cls.weight": 2})
    assert mapped == {"layers.3.linear1.bias": 1, "head.weight": 2}
    assert len(wm.HugginfaceBertEncoderMapper.RULES) == 6, "no mapper adds to it"


def test_load_file(tmp_path):
    encoder = torch_encoder(False, "relu", True)
    torch.save({"model": encoder.state_dict(), "step": 3}, tmp_path / "file.pt")
    loaded = wm.PytorchMapper.load_file(tmp_path / "file.pt", model_root="model")
    assert loaded["step"] == 3
    assert loaded["model"].keys() == wm.encoder_from_pytorch(encoder).state_dict().keys()


def test_longformer_leaves_global_projections_out():
    state = {"layer.0.attention.self.query_global.weight": 1, "layer.0.output.dense.weight": 2}
    assert wm.LongformerMapper().map(state) == {"layers.0.linear2.weight": 2}


def test_encoder_from_pytorch_wants_an_encoder():
    with pytest.raises(TypeError, match="encoder: want a torch.nn.TransformerEncoder, got Linear"):
        wm.encoder_from_pytorch(torch.nn.Linear(2, 2))  # type: ignore[arg-type]
