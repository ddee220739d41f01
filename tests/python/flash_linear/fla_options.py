"""Tiny models of flash-linear-attention with options of their configurations that call further
functions, after tarn.install_as_fla(). A program, as fla_models.py is."""

import itertools
import sys
import warnings

import fla_models
import torch

import tarn

OPTIONS = {
    "full attention over residuals": dict(attnres_block_size=1),
    "attention over blocks of residuals": dict(attnres_block_size=4),
    "powlu": dict(hidden_act="powlu"),
    "powlu, unfused": dict(hidden_act="powlu", fuse_swiglu=False, powglu_power=2.0),
    "linear and cross entropy in one": dict(
        fuse_cross_entropy=False, fuse_linear_cross_entropy=True, use_l2warp=False
    ),
}
# The package itself refuses to build these: the gate of the output in these layers has the
# activation of the feed-forward part, and knows no powlu.
REFUSED = {(name, option) for name in ("retnet", "gla") for option in OPTIONS if "powlu" in option}


def told_by(model):
    tokens = torch.randint(fla_models.VOCABULARY, (2, 24))
    model.eval()
    with torch.no_grad():
        whole = model(tokens, logits_to_keep=None).logits
        start = model(tokens[:, :20], use_cache=True, logits_to_keep=None)
        rows, cache = [start.logits], start.past_key_values
        for t in range(20, 24):
            step = model(tokens[:, t : t + 1], past_key_values=cache, use_cache=True)
            rows.append(step.logits[:, -1:])
            cache = step.past_key_values
    loss, gradients = fla_models.trained(model, tokens)
    plain = torch.nn.functional.cross_entropy(whole[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    return {
        "whole": whole,
        "steps": torch.cat(rows, 1),
        "loss": loss,
        "plain": plain,
        "without gradient": [name for name, one in gradients.items() if one is None],
    }


def main(path, names):
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    tarn.install_as_fla()
    torch.save(
        {
            (name, option): told_by(fla_models.build(name, **OPTIONS[option]))
            for name, option in itertools.product(names, OPTIONS)
            if (name, option) not in REFUSED
        },
        path,
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
