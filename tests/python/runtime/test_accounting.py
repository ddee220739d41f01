"""tarn.accounting: no torch needed; equal to tensors of built models, to
`tarn info`, and to a count of multiplications by definition."""

import json
import random
import subprocess
import sys

import pytest
from programs import BUILD

accounting = pytest.importorskip("tarn.accounting", exc_type=ImportError)

HEADS = [(1, 1, 1), (3, 5, 7), (64, 64, 64), (16, 8, 153)]


def random_keys(arch, choose):
    keys = dict(
        arch=arch,
        vocab_size=choose.randint(2, 90),
        n_heads=(heads := choose.randint(1, 4)),
        d_model=2 * heads * choose.randint(1, 5),
        n_layers=choose.randint(1, 4),
        d_ff=choose.randint(1, 50),
        max_positions=choose.randint(1, 40),
        positions=choose.choice(["none", "learned", "sinusoidal"]),
        final_norm=choose.random() < 0.5,
    )
    if arch == "encoder":
        keys["n_classes"] = choose.randint(2, 9)
    elif arch in ("decoder", "seq2seq"):
        keys["tied_head"] = choose.random() < 0.5
        keys["feature_map"] = choose.choice(["elu1", "relu2", "poly2", "favor", "rff"])
        keys["d_value"] = choose.randint(1, 7)
        keys["attention"] = choose.choice(["linear", "full"])
    elif arch == "cnn":
        keys["kernel_size"] = choose.randint(1, 5)
    return keys


PARTS = [  # the first that matches a parameter's name
    ("pos_embedding", "positions"),
    ("embedding", "embedding"),
    ("attention.", "attention"),
    ("linear1", "feed_forward"),
    ("linear2", "feed_forward"),
    ("norm", "norms"),
    ("predictor", "head"),
    ("", "recurrent"),
]


@pytest.mark.parametrize("arch", ["decoder", "encoder", "seq2seq", "rnn", "lstm", "cnn"])
def test_equals_the_tensors_of_a_built_model(arch):
    pytest.importorskip("torch")
    from tarn import models

    choose = random.Random(arch)
    for _ in range(5):
        keys = random_keys(arch, choose)
        wanted = dict.fromkeys(["embedding", "positions", "attention", "feed_forward"], 0)
        wanted |= dict.fromkeys(["norms", "recurrent", "head", "total"], 0)
        for name, parameter in models.make_model(keys).named_parameters():
            part = next(part for word, part in PARTS if word in name)
            wanted[part] += parameter.numel()
            wanted["total"] += parameter.numel()
        assert accounting.parameters_by_part(keys) == wanted, keys


@pytest.mark.parametrize("kind", ["linear", "full", "seq2seq", "encoder"])
def test_equals_tarn_info(kind, tmp_path):
    subprocess.run([BUILD / "write_random_model", tmp_path, kind], check=True)
    done = subprocess.run(
        [BUILD / "tarn", "info", tmp_path, "--json"], check=True, capture_output=True
    )
    facts = json.loads(done.stdout)
    assert accounting.parameters_by_part(tmp_path) == facts["parameters"]
    assert accounting.parameters_by_part(facts["config"]) == facts["parameters"]
    # The command prints the keys that the model reads, of all that a config has.
    whole = accounting.finish_config(str(tmp_path))
    assert {key: whole[key] for key in facts["config"]} == facts["config"]
    again = accounting.finish_config(facts["config"])
    assert {key: again[key] for key in facts["config"]} == facts["config"]
    if kind == "seq2seq":
        with pytest.raises(ValueError, match="arch"):
            accounting.scaling(tmp_path, 128)
    if kind in ("seq2seq", "encoder"):  # these have no growing text
        return
    table = facts["scaling"]
    for i, n in enumerate(table["tokens"]):
        at = accounting.scaling(tmp_path, n)
        assert at.tokens == n
        for side in ("softmax", "linear"):
            for column in ("parallel_flop", "step_flop", "step_bytes"):
                assert getattr(at, f"{side}_{column}") == table[side][column][i]
    head, from_ = accounting.head_widths(tmp_path), table["linear_is_less_from"]
    assert accounting.crossover_tokens(head) == from_["parallel"]
    assert accounting.step_crossover_tokens(head) == from_["step"]
    assert accounting.memory_crossover_tokens(head) == from_["memory"]


@pytest.mark.parametrize("widths", HEADS)
@pytest.mark.parametrize("n", [0, 1, 2, 9])
def test_flop_equals_a_count(widths, n):
    """Multiply-adds of the definitions, one by one."""
    d_key, d_value, d_feature = widths
    head = accounting.HeadWidths(*widths)
    for causal in (True, False):
        count = 0
        for i in range(n):
            for _ in range(i + 1 if causal else n):
                count += 2 * d_key + 2 * d_value  # a score; a value's share
        assert accounting.softmax_flop(head, n, causal=causal) == count
    count = 0
    for _ in range(n):
        count += 2 * d_feature * d_value + d_feature  # S += phi(k) v^T, z += phi(k)
        count += 2 * d_feature * d_value + 2 * d_feature  # phi(q)^T S, phi(q)^T z
    assert accounting.linear_flop(head, n) == count
    assert accounting.linear_flop(head, n) == n * accounting.linear_step_flop(head)
    steps = [accounting.softmax_step_flop(head, past) for past in range(n)]
    assert sum(steps) == accounting.softmax_flop(head, n)
    assert accounting.softmax_cache_bytes(head, n) == 4 * n * (d_key + d_value)
    assert accounting.linear_state_bytes(head) == 4 * d_feature * (d_value + 1)


@pytest.mark.parametrize("widths", HEADS)
def test_crossings_are_where_costs_meet(widths):
    head = accounting.HeadWidths(*widths)
    past = accounting.step_crossover_tokens(head)
    slope = accounting.softmax_step_flop(head, 1) - accounting.softmax_step_flop(head, 0)
    at = accounting.softmax_step_flop(head, 0) + slope * past
    assert at == pytest.approx(accounting.linear_step_flop(head))
    tokens = accounting.memory_crossover_tokens(head)
    each = accounting.softmax_cache_bytes(head, 1)
    assert tokens * each == pytest.approx(accounting.linear_state_bytes(head))
    # The leading terms are exact as the length and the widths grow together.
    causal = accounting.crossover_tokens(head)
    assert causal == 2 * accounting.crossover_tokens(head, causal=False)
    d_key, d_value, d_feature = widths
    assert causal**2 * (d_key + d_value) == pytest.approx(causal * 4 * d_feature * d_value)


def test_textbook_leaves_out_biases_and_norms():
    d = 24
    for layers in (1, 2):
        keys = dict(d_model=d, n_heads=3, n_layers=layers, vocab_size=7, positions="none")
        parts = accounting.parameters_by_part({**keys, "d_ff": 4 * d, "final_norm": False})
        body = parts["total"] - parts["head"]
        textbook = layers * accounting.textbook_parameters(d, 0)
        assert body == textbook + 7 * d + layers * 13 * d
    assert accounting.textbook_parameters(d, 7) == 12 * d * d + 7 * d


def test_needs_no_torch():
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from tarn import accounting\n"
        "print(accounting.parameters_by_part({})['total'])"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    assert int(done.stdout) == accounting.parameters_by_part({})["total"] > 0


def test_errors_name_the_argument(tmp_path):
    head = accounting.HeadWidths(4, 4, 4)
    with pytest.raises(ValueError, match="n_heads"):
        accounting.parameters_by_part({"n_heads": 3})
    with pytest.raises(ValueError, match="d_modle"):
        accounting.head_widths({"d_modle": 3})
    with pytest.raises(OSError, match="config.json"):
        accounting.finish_config(tmp_path)
    with pytest.raises(ValueError, match="^n: want 0 or more"):
        accounting.softmax_flop(head, -1)
    with pytest.raises(ValueError, match="64 bits"):
        accounting.softmax_flop(head, 2**40)
    with pytest.raises(ValueError, match="widths"):
        accounting.linear_step_flop(accounting.HeadWidths(4, 0, 4))
    with pytest.raises(ValueError, match="n: want 1 or more"):
        accounting.scaling({}, 0)
    with pytest.raises(ValueError, match="d_model"):
        accounting.textbook_parameters(0, 5)
