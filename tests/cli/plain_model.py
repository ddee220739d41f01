"""A model directory written, and a model run, with numpy and no code of tarn.

It is written from docs/model-format.md, so that it also tests that page. Float64
throughout; shapes as comments.
"""

import json
import math
import pathlib
import struct

import numpy as np

# Sections of config.json: key in the file -> key here, where the two differ.
SECTIONS = {
    "model": {
        key: key
        for key in (
            "vocab_size",
            "d_model",
            "n_layers",
            "n_heads",
            "d_key",
            "d_value",
            "dropout",
            "tied_head",
            "tokenizer",
            "arch",
            "task",
            "n_classes",
            "n_decoder_layers",
            "cross_attention",
            "input_dim",
        )
    },
    "linear": {
        key: key
        for key in (
            "feature_map",
            "denominator",
            "eps",
            "n_dims",
            "stabilise",
            "redraw",
            "feature_seed",
        )
    },
    "softmax": {key: key for key in ("attention_dropout", "local_context", "topk", "length_limit")},
    "sparse": {
        key: key for key in ("clusters", "iterations", "bits", "hash_bias", "hash_chunk", "rounds")
    },
    "positions": {"kind": "positions", "combine": "position_combine"}
    | {key: key for key in ("max_positions", "rotary_place", "rotary_base")},
    "norm": {"place": "norm", "kind": "norm_kind", "final": "final_norm", "eps": "norm_eps"},
    "feed_forward": {"d_ff": "d_ff", "activation": "activation", "kind": "feed_forward"},
    "image": {
        "n_mixtures": "n_mixtures",
        "height": "image_height",
        "width": "image_width",
        "channels": "image_channels",
    },
    "recurrent": {"bidirectional": "bidirectional"},
}
# Sections that a mixer reads.
READS = {
    "linear": ["linear"],
    "full": ["softmax"],
    "exact-topk": ["softmax"],
    "reformer": ["sparse", "softmax"],
}

CONFIG = {
    "arch": "decoder",
    "task": "lm",
    "n_classes": 0,
    "n_decoder_layers": 0,
    "cross_attention": "linear",
    "input_dim": 0,
    "local_context": 0,
    "topk": 32,
    "length_limit": 512,
    "clusters": 16,
    "iterations": 10,
    "bits": 63,
    "hash_bias": True,
    "hash_chunk": 32,
    "rounds": 4,
    "n_dims": 0,
    "stabilise": False,
    "redraw": 1,
    "feature_seed": 0,
    "bidirectional": False,
    "norm_kind": "layer",
    "feed_forward": "mlp",
    "vocab_size": 256,
    "d_model": 32,
    "n_layers": 2,
    "n_heads": 4,
    "d_key": 8,
    "d_value": 8,
    "d_ff": 48,
    "attention": "linear",
    "feature_map": "elu1",
    "denominator": "exact",
    "eps": 1e-6,
    "positions": "learned",
    "position_combine": "add",
    "max_positions": 4096,
    "rotary_place": "before",
    "rotary_base": 10000.0,
    "norm": "pre",
    "final_norm": True,
    "norm_eps": 1e-5,
    "activation": "gelu",
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "tied_head": False,
    "tokenizer": "byte",
}


def file_text(config):
    """config.json of a model with these keys: the sections that it reads."""
    sections = ["model"]
    if config["task"] == "image":
        sections.append("image")
    if config["arch"] in ("rnn", "lstm"):
        sections.append("recurrent")
    else:
        sections += ["positions", "norm", "feed_forward", *READS[config["attention"]]]
        if config["arch"] == "seq2seq":
            sections += READS[config["cross_attention"]]
    file = {"format_version": 4}
    for section in dict.fromkeys(sections):
        file[section] = {key: config[here] for key, here in SECTIONS[section].items()}
    if config["arch"] not in ("rnn", "lstm"):
        file["layers"] = [config["attention"]]
    return json.dumps(file)


def shapes(config):
    """Name -> shape of every tensor, in model order. Weights are [out, in]."""
    d, ff, vocab = config["d_model"], config["d_ff"], config["vocab_size"]
    heads = config["n_heads"]
    keys, values = heads * config["d_key"], heads * config["d_value"]
    found = {"value_embedding.weight": (vocab, d)}
    if config["positions"] == "learned":
        found["pos_embedding.weight"] = (config["max_positions"], d)
    for i in range(config["n_layers"]):
        layer = f"layers.{i}."
        for name, rows, columns in (
            ("attention.query_projection", keys, d),
            ("attention.key_projection", keys, d),
            ("attention.value_projection", values, d),
            ("attention.out_projection", d, values),
            ("linear1", ff, d),
            ("linear2", d, ff),
        ):
            found[f"{layer}{name}.weight"] = (rows, columns)
            found[f"{layer}{name}.bias"] = (rows,)
        for name in ("norm1", "norm2"):
            found[f"{layer}{name}.weight"] = (d,)
            found[f"{layer}{name}.bias"] = (d,)
    if config["final_norm"]:
        found["norm.weight"] = (d,)
        found["norm.bias"] = (d,)
    if not config["tied_head"]:
        found["predictor.weight"] = (vocab, d)
    found["predictor.bias"] = (vocab,)
    return found


def random_weights(config, seed):
    random = np.random.default_rng(seed)
    weights = {}
    for name, shape in shapes(config).items():
        values = random.normal(0, 0.3, shape)
        if "norm" in name and name.endswith("weight"):
            values += 1
        weights[name] = values.astype(np.float32)
    return weights


def write_safetensors(path, tensors):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, values in tensors.items():
        header[name] = {
            "dtype": "F32",
            "shape": list(values.shape),
            "data_offsets": [offset, offset + values.nbytes],
        }
        offset += values.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for values in tensors.values():
            file.write(values.astype("<f4").tobytes())


def write_model(folder, seed=0, characters=None, weights=None, **changes):
    """Writes the three files; returns (config, weights). `characters`: the
    alphabet of a char model, None for bytes. `changes`: keys of the config."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = {**CONFIG, **changes}
    tokenizer = {"format_version": 1, "type": "byte"}
    if characters is not None:
        points = sorted({ord(c) for c in characters})
        config = {
            **config,
            "tokenizer": "char",
            "vocab_size": changes.get("vocab_size", len(points)),
        }
        tokenizer = {"format_version": 1, "type": "char", "code_points": points}
    if changes.get("tokenizer") == "ids":
        tokenizer = {"format_version": 1, "type": "ids", "vocab_size": config["vocab_size"]}
    weights = weights or random_weights(config, seed)
    (folder / "config.json").write_text(file_text(config))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    write_safetensors(folder / "model.safetensors", weights)
    return config, weights


def _layer_norm(x, weight, bias, eps):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps) * weight + bias


def _gelu(x):
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def _attention(config, weights, prefix, x):  # x, result: [T, d_model]
    seq_len, heads = len(x), config["n_heads"]

    def project(name):
        y = x @ weights[f"{prefix}{name}_projection.weight"].T
        y = y + weights[f"{prefix}{name}_projection.bias"]
        return y.reshape(seq_len, heads, -1).transpose(1, 0, 2)  # [H, T, width]

    queries, keys, values = project("query"), project("key"), project("value")
    if config["attention"] == "linear":  # Katharopoulos et al. 2020, eq. (9)
        phi = lambda a: np.where(a > 0, a + 1, np.exp(np.minimum(a, 0)))
        scores = phi(queries) @ phi(keys).transpose(0, 2, 1)  # [H, T, T]
    else:
        scores = queries @ keys.transpose(0, 2, 1) / math.sqrt(config["d_key"])
        scores = np.exp(scores - scores.max(-1, keepdims=True))
    scores = np.tril(scores)
    out = scores @ values / scores.sum(-1, keepdims=True)
    out = out.transpose(1, 0, 2).reshape(seq_len, -1)
    return (
        out @ weights[f"{prefix}out_projection.weight"].T + weights[f"{prefix}out_projection.bias"]
    )


def logits(config, weights, tokens):
    """[T, vocab] of a pre-norm model with learned or sinusoidal positions or none, gelu."""
    weights = {name: w.astype(np.float64) for name, w in weights.items()}
    x = weights["value_embedding.weight"][tokens]
    if config["positions"] == "learned":
        x = x + weights["pos_embedding.weight"][np.arange(len(tokens))]
    elif config["positions"] == "sinusoidal":
        width = x.shape[1]
        angles = np.arange(len(tokens))[:, None] / 10000 ** (np.arange(0, width, 2) / width)
        x = x + np.stack([np.sin(angles), np.cos(angles)], -1).reshape(len(tokens), width)
    eps = config["norm_eps"]
    norm = lambda y, name: _layer_norm(y, weights[name + ".weight"], weights[name + ".bias"], eps)
    for i in range(config["n_layers"]):
        layer = f"layers.{i}."
        x = x + _attention(config, weights, layer + "attention.", norm(x, layer + "norm1"))
        hidden = norm(x, layer + "norm2") @ weights[layer + "linear1.weight"].T
        hidden = _gelu(hidden + weights[layer + "linear1.bias"])
        x = x + hidden @ weights[layer + "linear2.weight"].T + weights[layer + "linear2.bias"]
    x = norm(x, "norm")
    head = weights["value_embedding.weight"] if config["tied_head"] else weights["predictor.weight"]
    return x @ head.T + weights["predictor.bias"]


def log_probabilities(config, weights, tokens):
    """Natural log of the probability of each token after the first."""
    rows = logits(config, weights, tokens)[:-1]
    rows = rows - rows.max(-1, keepdims=True)
    rows = rows - np.log(np.exp(rows).sum(-1, keepdims=True))
    return rows[np.arange(len(rows)), tokens[1:]]
