"""Sequence-to-sequence models and classifiers, written and run with numpy.

As plain_model.py, it is written from docs/model-format.md and docs/models.md, with no
code of tarn. Pre-norm, learned positions, gelu; float64; shapes as comments.
"""

import json
import math
import pathlib

import numpy as np
import plain_model


def config_of(arch, attention="linear", **changes):
    config = {**plain_model.CONFIG, "arch": arch, "attention": attention}
    if arch == "seq2seq":
        config |= {"task": "seq2seq", "n_decoder_layers": 2, "cross_attention": attention}
    if arch == "encoder":
        config |= {"task": "classify", "n_classes": 3}
    return {**config, **changes}


def _layer(config, prefix, attentions):
    d, ff = config["d_model"], config["d_ff"]
    keys, values = (config["n_heads"] * config[k] for k in ("d_key", "d_value"))
    found = {}
    for attention in attentions:
        for name, rows, columns in (
            ("query", keys, d),
            ("key", keys, d),
            ("value", values, d),
            ("out", d, values),
        ):
            found[f"{prefix}{attention}.{name}_projection.weight"] = (rows, columns)
            found[f"{prefix}{attention}.{name}_projection.bias"] = (rows,)
    for name, rows, columns in (("linear1", ff, d), ("linear2", d, ff)):
        found[f"{prefix}{name}.weight"] = (rows, columns)
        found[f"{prefix}{name}.bias"] = (rows,)
    for i in range(len(attentions) + 1):
        found |= {f"{prefix}norm{i + 1}.weight": (d,), f"{prefix}norm{i + 1}.bias": (d,)}
    return found


def shapes(config):
    """Name -> shape of every tensor. Weights are [out, in]."""
    d, vocab, rows = config["d_model"], config["vocab_size"], config["max_positions"]
    found = {"value_embedding.weight": (vocab, d), "pos_embedding.weight": (rows, d)}
    stacks = [("", config["n_layers"], ["attention"])]
    if config["arch"] == "seq2seq":
        found |= {"target_embedding.weight": (vocab, d), "target_pos_embedding.weight": (rows, d)}
        stacks = [
            ("encoder.", config["n_layers"], ["attention"]),
            ("decoder.", config["n_decoder_layers"], ["self_attention", "cross_attention"]),
        ]
    for prefix, layers, attentions in stacks:
        for i in range(layers):
            found |= _layer(config, f"{prefix}layers.{i}.", attentions)
        found |= {f"{prefix}norm.weight": (d,), f"{prefix}norm.bias": (d,)}
    outputs = config["n_classes"] or vocab
    return found | {"predictor.weight": (outputs, d), "predictor.bias": (outputs,)}


def write_model(folder, config, seed=0, labels=None):
    """Writes the files; returns the weights. labels: names of a classifier's classes."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    weights = {
        name: (random.normal(0, 0.3, shape) + ("norm" in name and name.endswith("weight"))).astype(
            np.float32
        )
        for name, shape in shapes(config).items()
    }
    (folder / "config.json").write_text(plain_model.file_text(config))
    (folder / "tokenizer.json").write_text('{"format_version": 1, "type": "byte"}')
    if labels is not None:
        (folder / "labels.json").write_text(json.dumps(labels))
    plain_model.write_safetensors(folder / "model.safetensors", weights)
    return weights


class PlainPairs:
    """The forward pass, over whole sequences."""

    def __init__(self, config, weights):
        self.config = config
        self.weights = {name: w.astype(np.float64) for name, w in weights.items()}

    def class_logits(self, tokens):
        """[n_classes]: the head on the mean of the stack's rows."""
        x = self._embed("value_embedding", "pos_embedding", tokens)
        x = self._stack("", self.config["n_layers"], x)
        return self._affine("predictor", x.mean(0))

    def target_logits(self, source, target):
        """[target, vocab]"""
        memory = self._embed("value_embedding", "pos_embedding", source)
        memory = self._stack("encoder.", self.config["n_layers"], memory)
        x = self._embed("target_embedding", "target_pos_embedding", target)
        x = self._stack("decoder.", self.config["n_decoder_layers"], x, memory)
        return self._affine("predictor", x)

    def _embed(self, values, places, tokens):
        rows = np.arange(len(tokens))
        return self.weights[values + ".weight"][tokens] + self.weights[places + ".weight"][rows]

    def _affine(self, name, x):
        return x @ self.weights[name + ".weight"].T + self.weights[name + ".bias"]

    def _norm(self, name, x):
        centred = x - x.mean(-1, keepdims=True)
        scale = np.sqrt((centred**2).mean(-1, keepdims=True) + self.config["norm_eps"])
        return centred / scale * self.weights[name + ".weight"] + self.weights[name + ".bias"]

    def _stack(self, prefix, layers, x, memory=None):
        for i in range(layers):
            layer = f"{prefix}layers.{i}."
            y = self._norm(layer + "norm1", x)
            if memory is None:
                x = x + self._attend(layer + "attention.", y, y, False, "attention")
            else:
                x = x + self._attend(layer + "self_attention.", y, y, True, "attention")
                y = self._norm(layer + "norm2", x)
                x = x + self._attend(
                    layer + "cross_attention.", y, memory, False, "cross_attention"
                )
            hidden = self._norm(layer + ("norm2" if memory is None else "norm3"), x)
            hidden = self._affine(layer + "linear1", hidden)
            hidden = 0.5 * hidden * (1 + np.vectorize(math.erf)(hidden / math.sqrt(2)))
            x = x + self._affine(layer + "linear2", hidden)
        return self._norm(prefix + "norm", x)

    def _attend(self, prefix, x, memory, causal, kind):
        def project(name, rows):  # [H, rows, width]
            y = self._affine(f"{prefix}{name}_projection", rows)
            return y.reshape(len(rows), self.config["n_heads"], -1).transpose(1, 0, 2)

        queries, keys, values = (
            project("query", x),
            project("key", memory),
            project("value", memory),
        )
        if self.config[kind] == "linear":
            phi = lambda a: np.where(a > 0, a + 1, np.exp(np.minimum(a, 0)))
            scores = phi(queries) @ phi(keys).transpose(0, 2, 1)
        else:
            scores = queries @ keys.transpose(0, 2, 1) / math.sqrt(self.config["d_key"])
            scores = np.exp(scores - scores.max(-1, keepdims=True))
        if causal:
            scores = np.tril(scores)
        out = scores @ values / scores.sum(-1, keepdims=True)
        return self._affine(prefix + "out_projection", out.transpose(1, 0, 2).reshape(len(x), -1))
