"""The Python half of the family, added by registration alone from outside the
package, in hybrids with two of the package's. It runs in a separate process, since what
is registered stays."""

import json

import ema
import pytest
import torch

import tarn
from tarn import _tables as tables
from tarn import models, nn, recurrent

SMALL = dict(vocab_size=256, d_model=24, n_layers=4, n_heads=3, d_ff=40, max_positions=32)
MODERN = dict(norm_kind="rms", feed_forward="swiglu")
PATTERNS = [
    dict(layers=["ema", "linear", "full"], **MODERN),
    dict(layers=["linear", {"mixer": "ema", "ema_least": 0.5}], norm="post"),
    dict(attention="ema", ema_least=0.25),
]


ema.register()


@pytest.fixture(autouse=True)
def fixed_start():
    torch.manual_seed(20200629)


@pytest.mark.parametrize("keys", PATTERNS, ids=str)
def test_forward_prefill_and_step_agree(keys):
    model = models.LanguageModel(**SMALL, **keys).eval()
    tokens = torch.randint(256, (3, 11))
    with torch.no_grad():
        wanted = model(tokens)
        first, state = model.prefill(tokens[:, :4])
        rest, _ = model.prefill(tokens[:, 4:], state=state)
        stepped, rows = None, []
        for t in range(11):
            row, stepped = model.step(tokens[:, t], stepped)
            rows.append(row)
        lengths = torch.tensor([4, 0, 2])
        _, ragged = model.prefill(tokens[:, :4], lengths)
        given, _ = model.step(tokens[torch.arange(3), lengths], ragged)
    torch.testing.assert_close(torch.cat([first, rest], 1), wanted, rtol=0, atol=3e-5)
    torch.testing.assert_close(torch.stack(rows, 1), wanted, rtol=0, atol=3e-5)
    torch.testing.assert_close(given, wanted[torch.arange(3), lengths], rtol=0, atol=3e-5)
    # Control: the past of the registered layer has an effect.
    lost = list(state)
    at = [part.kind for part in state].index("ema")
    lost[at] = lost[at].reset([0, 1, 2])
    with torch.no_grad():
        wrong, _ = model.step(tokens[:, 4], lost)
    assert (wrong - wanted[:, 4]).abs().max() > 1e-3


def test_its_keys_stand_in_a_section_of_their_own(tmp_path):
    model = models.LanguageModel(**SMALL, **PATTERNS[1]).eval()
    shapes = models.weight_shapes(model.config)
    assert shapes["layers.1.attention.decay"] == (24,)
    leasts = [getattr(layer.attention, "least", None) for layer in model.layers]
    assert leasts == [None, 0.5, None, 0.5]
    tarn.save_model(model, tmp_path / "model")
    written = json.loads((tmp_path / "model" / "config.json").read_text())
    assert written["ema"] == {"least": 0.0}
    assert written["layers"] == ["linear", {"mixer": "ema", "ema_least": 0.5}]
    again = tarn.load_model(tmp_path / "model")
    assert again.config == model.config
    tokens = torch.randint(256, (2, 9))
    assert torch.equal(again(tokens), model(tokens))
    whole = models.LanguageModel(**SMALL, **PATTERNS[2])
    tarn.save_model(whole, tmp_path / "whole")
    written = json.loads((tmp_path / "whole" / "config.json").read_text())
    assert written["ema"] == {"least": 0.25} and "linear" not in written
    # Models without the mixer know nothing of it.
    tarn.save_model(models.LanguageModel(**SMALL), tmp_path / "plain")
    assert "ema" not in (tmp_path / "plain" / "config.json").read_text()
    assert "ema_least" not in models.finish_config()
    wanted = tables.config_fields()["ema_least"]["wanted"]
    assert wanted == "a number from 0 to 0.9"
    with pytest.raises(ValueError, match=f"ema_least: want {wanted}, got 1"):
        models.finish_config(attention="ema", ema_least=1.0)
    with pytest.raises(ValueError, match="ema: want the keys of this section"):
        models.finish_config(attention="ema", ema={"most": 1.0})


def test_state_is_a_value_that_files_keep(tmp_path):
    model = models.LanguageModel(**SMALL, **PATTERNS[0]).eval()
    tokens = torch.randint(256, (2, 9))
    with torch.no_grad():
        _, state = model.prefill(tokens[:, :5])
        kept = recurrent.clone(state)
        wanted, _ = model.step(tokens[:, 5], state)
        assert state == kept
        recurrent.save_state(state, tmp_path / "state")
        loaded = recurrent.load_state(tmp_path / "state")
        assert loaded == state
        swapped = recurrent.reorder(loaded, [1, 0])
        given, _ = model.step(tokens[:, 5].flip(0), swapped)
    torch.testing.assert_close(given.flip(0), wanted, rtol=0, atol=1e-6)
    (rows,) = [rows for rows in tables.layer_states(model.config)[:1]]
    assert rows == [{"name": "average", "shape": [24], "initial": 0.0, "grows": False}]


def test_layers_of_nn_take_it_and_it_learns():
    layer = nn.EncoderLayer(24, 3, 40, mixer="ema", ema_least=0.5)
    x = torch.randn(2, 7, 24)
    key_mask = torch.arange(7) < torch.tensor([7, 4])[:, None]
    wanted = layer(x, key_mask)
    given, state = layer.prefill(x, lengths=torch.tensor([7, 4]))
    torch.testing.assert_close(given[key_mask], wanted[key_mask])
    torch.testing.assert_close(layer.step(x[:, 0])[0], wanted[:, 0])
    model = models.LanguageModel(**SMALL, **PATTERNS[0])
    tokens = torch.arange(24).remainder(7)[None]
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        logits = model(tokens[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits[0], tokens[0, 1:])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]
    assert model.layers[0].attention.decay.grad.abs().max() > 0


def test_what_registration_refuses():
    with pytest.raises(ValueError, match="name: want a unique name, got 'ema'"):
        ema.register()
    with pytest.raises(ValueError, match="spec.name: want a unique name, got 'linear'"):
        nn.register_mixer("linear", ema.Ema, weights={})
    with pytest.raises(ValueError, match="weights: want a number from 1 or names of keys"):
        nn.register_mixer("new", ema.Ema, weights={"w": ["d_modle"]})
    with pytest.raises(ValueError, match="weights: want them for the new 'new', got None"):
        nn.register_mixer("new", ema.Ema)
    key = {"name": "topk", "help": "", "min": 0, "max": 1, "default": 0}
    with pytest.raises(ValueError, match="keys: topk: want a name that no key has, got 'topk'"):
        nn.register_mixer("new", ema.Ema, weights={}, keys=[key])
    with pytest.raises(ValueError, match="keys: new_a: want a default from 0 to 1, got 2"):
        nn.register_mixer("new", ema.Ema, weights={}, keys=[{**key, "name": "new_a", "default": 2}])
    assert "new" not in tables.mixers() and "new_a" not in tables.config_fields()
    with pytest.raises(ValueError, match="attention: want a kind that is not causal"):
        models.Classifier(**SMALL, attention="ema", n_classes=3)
    with pytest.raises(ValueError, match="positions: want none, sinusoidal or learned"):
        models.LanguageModel(**SMALL, attention="ema", positions="rotary")
