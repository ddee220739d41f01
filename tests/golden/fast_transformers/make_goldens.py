"""Writes the golden values: what fast-transformers 0.4.0 computes, for
test_golden.py. Run with a Python that has the package:

    python tests/golden/fast_transformers/make_goldens.py [folder]

Each file holds the options of a module (JSON under "options"), its weights
("weights/..."), inputs ("inputs/...") and output ("output"). Small sizes, fixed
seeds, one thread. Hashing kinds are compared where hashes cannot matter: every
query its own cluster, or one chunk for all.
"""

import json
import pathlib
import sys

import fast_transformers
import numpy as np
import torch
from fast_transformers import attention as att
from fast_transformers import builders, feature_maps, masking
from fast_transformers.causal_product import causal_dot_product

N, L, S, H, E, M = 2, 7, 9, 2, 5, 3
LENGTHS = [7, 4]
KEY_LENGTHS = [9, 5]

torch.manual_seed(2020)
torch.set_num_threads(1)
target = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)


FOLDERS = {
    "map": "feature_maps",
    "mask": "masks",
    "encoder": "models",
    "decoder": "models",
    "recurrent": "models",
}


def write(name, options, inputs, output, weights=None):
    """One file: arrays as numpy stores them, options as a JSON text."""
    folder = target / FOLDERS.get(name.partition("_")[0], "attention")
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {f"inputs/{key}": np.asarray(value) for key, value in inputs.items()}
    arrays |= {f"weights/{k}": v.detach().numpy() for k, v in (weights or {}).items()}
    arrays["output"] = output.detach().numpy()
    np.savez_compressed(folder / f"{name}.npz", options=json.dumps(options), **arrays)


def qkv(seq_len=L, keys=S, width=M):
    sizes = ((seq_len, E), (keys, E), (keys, width))
    return [torch.randn(N, length, H, features) for length, features in sizes]


def lengths(values, padded):
    return masking.LengthMask(torch.tensor(values), max_len=padded)


def dense(rows, columns):
    kept = torch.rand(rows, columns) > 0.4
    kept[:, 0] = True
    return kept


def inner(name, cls, options, masks=("full",), same=False, width=M, build=None):
    """One inner attention under several masks."""
    module = (build or (lambda: cls(**options)))().eval()
    for mask in masks:
        keys = L if same or mask == "causal" else S
        q, k, v = qkv(L, keys, width)
        inputs = {"queries": q, "keys": k, "values": v}
        key_lengths = LENGTHS if keys == L else KEY_LENGTHS
        if mask == "dense":
            kept = dense(L, keys)
            attn_mask = masking.FullMask(kept)
            inputs["mask"] = kept
        elif mask == "causal":
            attn_mask = masking.TriangularCausalMask(L)
        else:
            attn_mask = masking.FullMask(L, keys)
        out = module(q, k, v, attn_mask, lengths(LENGTHS, L), lengths(key_lengths, keys))
        settings = {
            "class": cls.__name__,
            "arguments": options,
            "mask": mask,
            "lengths": LENGTHS,
            "key_lengths": key_lengths,
        }
        write(f"{name}_{mask}", settings, inputs, out, dict(module.state_dict()))


def attentions():
    plain = {"attention_dropout": 0.0}
    inner("full", att.FullAttention, plain, ("full", "causal", "dense"))
    inner("full_temp", att.FullAttention, {"softmax_temp": 0.7, **plain})
    inner("linear", att.LinearAttention, {"query_dimensions": E})
    inner("causal_linear", att.CausalLinearAttention, {"query_dimensions": E}, ("causal",))
    for context in (3, 4):
        options = {"local_context": context, **plain}
        inner(f"local{context}", att.LocalAttention, options, ("full", "causal"), True)
    inner("exact_topk", att.ExactTopKAttention, {"topk": 3, **plain}, ("full", "causal"))
    for limit in (4, 512):
        inner(
            f"conditional{limit}",
            att.ConditionalFullAttention,
            {"length_limit": limit, **plain},
            build=lambda: att.ConditionalFullAttention(
                att.LinearAttention(E), limit, attention_dropout=0.0
            ),
        )
    # One chunk holds the whole sequence, so buckets only decide the order.
    chunk = {"chunk_size": L, "bits": 4, "rounds": 1, **plain}
    inner("reformer", att.ReformerAttention, chunk, ("full", "causal"), True, width=E)
    inner("reformer_masked", att.ReformerAttention, {**chunk, "masked": True}, ("full",), True, E)
    rounds = {**chunk, "rounds": 3}
    inner("reformer_rounds", att.ReformerAttention, rounds, ("full",), True, E)


def clustered():
    """As many clusters as queries, all of them far apart, so that each has its own."""
    for name, cls, mask in (
        ("clustered", att.ClusteredAttention, "full"),
        ("improved_clustered", att.ImprovedClusteredAttention, "full"),
        ("causal_improved_clustered", att.ImprovedClusteredCausalAttention, "causal"),
    ):
        options = {"clusters": 4, "bits": 63, "iterations": 10, "attention_dropout": 0.0}
        if name != "clustered":
            options["topk"] = 3
        module = cls(**options).eval()
        q, k, v = qkv(4, 6 if mask == "full" else 4)
        attn_mask = masking.FullMask(4, 6) if mask == "full" else masking.TriangularCausalMask(4)
        keys = k.shape[1]
        # The start positions are all queries, so no draw can change the result.
        outs = [
            module(q, k, v, attn_mask, lengths([4, 4], 4), lengths([keys, keys], keys))
            for _ in range(40)
        ]
        if not all(torch.allclose(out, outs[0]) for out in outs):
            raise SystemExit(f"{name}: want each query its own cluster, got a draw without")
        settings = {
            "class": cls.__name__,
            "arguments": options,
            "mask": mask,
            "lengths": [4, 4],
            "key_lengths": [keys, keys],
        }
        inputs = {"queries": q, "keys": k, "values": v}
        write(f"{name}_{mask}", settings, inputs, outs[0])


def maps():
    x = torch.randn(N, L, H, E)
    for name, cls, options in (
        ("rff", feature_maps.RandomFourierFeatures, {"n_dims": 6}),
        ("rff_odd", feature_maps.RandomFourierFeatures, {"n_dims": 7}),
        ("smoothed_rff", feature_maps.SmoothedRandomFourierFeatures, {"n_dims": 7}),
        ("smoothed_rff_even", feature_maps.SmoothedRandomFourierFeatures, {"smoothing": 0.5}),
        ("favor", feature_maps.Favor, {"n_dims": 6, "softmax_temp": 0.4}),
        ("favor_odd", feature_maps.Favor, {}),
        ("favor_stabilised", feature_maps.Favor, {"n_dims": 6, "stabilize": True}),
        ("grf", feature_maps.GeneralizedRandomFeatures, {"n_dims": 4}),
    ):
        feature_map = cls(E, **options)
        feature_map.new_feature_map("cpu")
        settings = {"class": cls.__name__, "arguments": options, "query_dims": E}
        weights = dict(feature_map.state_dict())
        write(f"map_{name}", settings, {"x": x}, feature_map(x), weights)
    write(
        "map_elu", {"class": "elu", "query_dims": E}, {"x": x}, feature_maps.elu_feature_map(E)(x)
    )


def products():
    q, k = torch.rand(N, H, L, E), torch.rand(N, H, L, E)
    v = torch.randn(N, H, L, M)
    write(
        "causal_product",
        {"class": "causal_dot_product"},
        {"Q": q, "K": k, "V": v},
        causal_dot_product(q, k, v),
    )


SETTINGS = {
    "n_layers": 2,
    "n_heads": 2,
    "query_dimensions": 5,
    "value_dimensions": 3,
    "feed_forward_dimensions": 8,
    "dropout": 0.0,
}


def weights_of(module):
    """Weights that all differ from their initial values, norms included."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return dict(module.state_dict())


def encoders():
    x = torch.randn(N, L, 6)
    for kind in ("full", "linear", "causal-linear", "local", "exact-topk"):
        options = {**SETTINGS, "attention_type": kind, "activation": "gelu"}
        builder = builders.TransformerEncoderBuilder.from_dictionary(options)
        if kind == "local":
            builder.local_context = 3
        if kind == "exact-topk":
            builder.topk = 3
        more = {"local_context": 3} if kind == "local" else {}
        more |= {"topk": 3} if kind == "exact-topk" else {}
        if "linear" not in kind:
            builder.attention_dropout = 0.0
            more["attention_dropout"] = 0.0
        model = builder.get().eval()
        weights = weights_of(model)
        mask = masking.TriangularCausalMask(L) if kind == "causal-linear" else None
        out = model(x, attn_mask=mask, length_mask=lengths(LENGTHS, L))
        settings = {
            "builder": "TransformerEncoderBuilder",
            "settings": {**options, **more},
            "causal": kind == "causal-linear",
            "lengths": LENGTHS,
        }
        write(f"encoder_{kind}", settings, {"x": x}, out, weights)


def decoders():
    x, memory = torch.randn(N, L, 6), torch.randn(N, S, 6)
    for kind, cross in (("full", "full"), ("causal-linear", "linear")):
        options = {
            **SETTINGS,
            "self_attention_type": kind,
            "cross_attention_type": cross,
            "final_normalization": False,
        }
        if kind == "full":
            options["attention_dropout"] = 0.0
        builder = builders.TransformerDecoderBuilder.from_dictionary(options)
        model = builder.get().eval()
        weights = weights_of(model)
        out = model(
            x,
            memory,
            x_mask=masking.TriangularCausalMask(L),
            x_length_mask=lengths(LENGTHS, L),
            memory_length_mask=lengths(KEY_LENGTHS, S),
        )
        settings = {
            "builder": "TransformerDecoderBuilder",
            "settings": options,
            "lengths": LENGTHS,
            "key_lengths": KEY_LENGTHS,
        }
        write(f"decoder_{kind}", settings, {"x": x, "memory": memory}, out, weights)


def recurrent():
    x, memory = torch.randn(N, L, 6), torch.randn(N, S, 6)
    for kind in ("full", "linear"):
        options = {**SETTINGS, "attention_type": kind}
        if kind == "full":
            options["attention_dropout"] = 0.0
        model = builders.RecurrentEncoderBuilder.from_dictionary(options).get().eval()
        weights = weights_of(model)
        state, rows = None, []
        with torch.no_grad():
            for i in range(L):
                y, state = model(x[:, i], state=state)
                rows.append(y)
        settings = {"builder": "RecurrentEncoderBuilder", "settings": options}
        write(f"recurrent_encoder_{kind}", settings, {"x": x}, torch.stack(rows, 1), weights)

        options = {**options, "self_attention_type": kind, "cross_attention_type": kind}
        del options["attention_type"]
        model = builders.RecurrentDecoderBuilder.from_dictionary(options).get().eval()
        weights = weights_of(model)
        state, rows = None, []
        with torch.no_grad():
            for i in range(L):
                y, state = model(
                    x[:, i], memory, memory_length_mask=lengths(KEY_LENGTHS, S), state=state
                )
                rows.append(y)
        settings = {
            "builder": "RecurrentDecoderBuilder",
            "settings": options,
            "key_lengths": KEY_LENGTHS,
        }
        inputs = {"x": x, "memory": memory}
        write(f"recurrent_decoder_{kind}", settings, inputs, torch.stack(rows, 1), weights)


def masks():
    for name, mask in (
        ("full", masking.FullMask(dense(4, 6))),
        ("length", masking.LengthMask(torch.tensor([3, 0, 5]), max_len=5)),
        ("causal", masking.TriangularCausalMask(5)),
    ):
        settings = {"class": type(mask).__name__, "lower_triangular": bool(mask.lower_triangular)}
        inputs = {
            "float_matrix": mask.float_matrix,
            "additive_matrix": mask.additive_matrix,
            "additive_matrix_finite": mask.additive_matrix_finite,
        }
        if name != "full":
            inputs["lengths"] = mask.lengths
        write(f"mask_{name}", settings, inputs, mask.bool_matrix)


def main():
    if fast_transformers.__version__ != "0.4.0":
        raise SystemExit(f"want fast_transformers 0.4.0, got {fast_transformers.__version__}")
    for part in (attentions, clustered, maps, products, encoders, decoders, recurrent, masks):
        part()


main()
