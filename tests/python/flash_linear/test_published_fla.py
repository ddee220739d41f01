"""Directories that flash-linear-attention 0.6 wrote: early files open, and what tarn cannot
run is refused by name. That the others compute what the package's classes do is tested by
test_models_supported.py."""

import json
import shutil

import numpy as np
import pytest
import test_fla_package as package
from published_fla import CASES, NAMES

safetensors_torch = pytest.importorskip("safetensors.torch")
published = pytest.importorskip("published")
runtime = pytest.importorskip("tarn.runtime", exc_type=ImportError)
pytestmark = package.installed


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("published_fla")
    kinds = [kind for kind, _ in CASES]
    first = [name for index, name in enumerate(NAMES) if kinds.index(kinds[index]) == index]
    done = package.program(package.FOLDER / "published_fla.py", folder, *first)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def changed(written, tmp_path):
    """A directory of a class with other keys or tensors."""

    def copy(kind, keys, tensors=None):
        name = next(name for name in NAMES if name.startswith(f"{kind}-"))
        folder = shutil.copytree(written / name / "theirs", tmp_path / "model")
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **keys}))
        if tensors is not None:
            path = folder / "model.safetensors"
            weights = tensors(safetensors_torch.load_file(path))
            safetensors_torch.save_file(weights, path, {"format": "pt"})
        return folder

    return copy


def test_early_files_of_rwkv7_hold_the_shifts_in_one_tensor(changed, written):
    def packed(weights):
        for layer in range(3):
            rows = [weights.pop(f"model.layers.{layer}.attn.x_{n}") for n in "rwkvag"]
            weights[f"model.layers.{layer}.attn.x_x"] = published.torch.stack(
                [row.view(1, 1, -1) for row in rows]
            )
        return weights

    folder = changed("RWKV7", {}, packed)
    tokens = np.load(written / "tokens.npy")
    name = next(name for name in NAMES if name.startswith("RWKV7-"))
    opened = runtime.Model(folder)
    wanted = np.load(written / name / "logits.npy")
    published.assert_close(opened.score(opened.state(), tokens), wanted)


def test_queries_and_keys_may_share_a_feature_map(changed, written, tmp_path):
    """Files of such models hold it once; the class itself cannot write them."""
    name = next(name for name in NAMES if name.startswith("LinearAttention-"))
    both = shutil.copytree(written / name / "theirs", tmp_path / "both")
    weights = safetensors_torch.load_file(both / "model.safetensors")
    for key in [key for key in weights if "feature_map_k" in key]:
        weights[key] = weights[key.replace("map_k", "map_q")].clone()
    safetensors_torch.save_file(weights, both / "model.safetensors", {"format": "pt"})

    def once(weights):
        return {key: weight for key, weight in weights.items() if "feature_map_k" not in key}

    tokens = np.load(written / "tokens.npy")
    shared = runtime.Model(changed("LinearAttention", dict(tie_feature_map_qk=True), once))
    twice = runtime.Model(both)
    given = shared.score(shared.state(), tokens)
    assert np.array_equal(given, twice.score(twice.state(), tokens))
    own = runtime.Model(written / name / "theirs")
    assert not np.array_equal(given, own.score(own.state(), tokens))


REFUSED = [
    ("GatedDeltaNet", dict(attnres_block_size=1), "attnres_block_size: want null, got 1"),
    ("GatedDeltaNet", dict(hidden_act="powlu"), "hidden_act: want 'swish', got 'powlu'"),
    ("GatedDeltaNet", dict(output_gate_activation="relu"), "want 'swish', 'silu' or 'sigmoid'"),
    ("GatedDeltaNet", dict(expand_v=0.33), "expand_v: want a factor that makes head_dim an int"),
    ("GatedDeltaNet", dict(conv_size=1), "conv_size: want an integer from 2 to 8, got 1"),
    ("GatedDeltaNet", dict(conv_size=3), "q_conv1d.weight.*want the numbers of"),
    ("GatedDeltaNet", dict(num_heads=3), "q_conv1d.weight.*want the numbers of"),
    ("GatedDeltaNet", dict(new_option=3), "want keys that tarn knows .*'new_option': 3"),
    ("GatedDeltaNet", dict(num_hidden_layers=1 << 40), "num_hidden_layers: want an integer"),
    ("GatedDeltaNet", dict(hidden_ratio=-1), "hidden_ratio: want a number up to 1024"),
    ("GatedDeltaNet", dict(attn=[]), "attn: want an object"),
    ("GatedDeltaNet", dict(attn=dict(layers=[7], num_heads=2)), "layers: want a list of int"),
    ("GatedDeltaNet", dict(attn=dict(layers=[1, 1], num_heads=2)), "want each layer once, got 1 t"),
    ("GatedDeltaNet", dict(attn=dict(layers=[0], num_heads=5)), "num_heads: want a divisor"),
    (
        "GatedDeltaNet",
        dict(attn=dict(layers=[0], num_heads=2)),
        "want a name that config.json asks for|want a tensor|want shape",
    ),
    ("GatedDeltaNet", dict(attn=dict(layers=[], num_heads=2, x=1)), "want keys .*'x': 1"),
    ("DeltaNet", dict(qk_norm="sum"), "qk_norm: want 'l2', got 'sum'"),
    ("DeltaNet", dict(qk_activation="elu"), "qk_activation: want 'silu', got 'elu'"),
    ("DeltaNet", dict(use_beta=False, allow_neg_eigval=True), "want false where use_beta is f"),
    ("DeltaNet", dict(expand_k=0.31), "expand_k: want a factor of hidden_size"),
    ("GLA", dict(use_short_conv=True), "use_short_conv: want false, got true"),
    ("GLA", dict(clamp_min=-3.0), "clamp_min: want null"),
    ("GLA", dict(feature_map="relu"), "feature_map: want null"),
    ("GLA", dict(num_kv_heads=3), "num_kv_heads: want a divisor of 4, got 3"),
    ("GLA", dict(num_kv_heads=2), "k_proj.weight.*want 12 rows"),
    ("RetNet", dict(attn=dict(layers=[0], num_heads=2, rope_theta=5.0)), "want that of the oth"),
    ("RWKV7", dict(value_dim=[96] * 3), "value_dim: want hidden_size, 48, got 96"),
    ("RWKV7", dict(head_dim=7), "head_dim: want a divisor of 48, got 7"),
    ("RWKV7", dict(attn=dict(layers=[0], num_heads=2)), "attn: want null"),
    ("RWKV7", dict(v_low_rank_dim=5), "want shape"),
    ("RWKV7", dict(num_hidden_layers=2), "want a name that config.json asks for"),
    ("RWKV6", dict(expand_k=0.5), "expand_k: want expand_v: keys as wide as values, got 0.5"),
    ("RWKV6", dict(hidden_act="relu"), "hidden_act: want 'sqrelu', got 'relu'"),
    ("RWKV6", dict(proj_low_rank_dim=5), "x_proj.2.weight.*want the numbers of"),
    ("HGRN2", dict(use_short_conv=True), "use_short_conv: want false, got true"),
    ("HGRN2", dict(expand_ratio=5), "expand_ratio: want a divisor of 48, got 5"),
    ("HGRN2", dict(use_lower_bound=False), "want a name that config.json asks for"),
    ("LinearAttention", dict(feature_map="taylor"), "feature_map: want one of elu, identity, rel"),
    ("LinearAttention", dict(feature_map="t2r"), "want a tensor|want a name|no such tensor"),
    ("LinearAttention", dict(feature_map="relu"), "want a name that config.json asks for"),
    ("LinearAttention", dict(num_kv_heads=3), "num_kv_heads: want a divisor of 4, got 3"),
    ("LinearAttention", dict(hidden_act="relu"), "hidden_act: want 'swish', got 'relu'"),
    ("KDA", dict(safe_gate=True), "safe_gate: want false, got true"),
    ("KDA", dict(lower_bound=-5.0), "lower_bound: want null, got"),
]


@pytest.mark.parametrize(
    ("kind", "keys", "message"), REFUSED, ids=[f"{kind}-{keys}" for kind, keys, _ in REFUSED]
)
def test_what_cannot_be_run_is_refused_by_name(kind, keys, message, changed):
    with pytest.raises(Exception, match=message) as error:
        runtime.Model(changed(kind, keys))
    assert "\n" not in str(error.value)
