#!/usr/bin/env python3
"""Writes a model directory with random weights, for speed measurements.

config.json, tokenizer.json and model.safetensors as docs/model-format.md has
them, written tensor by tensor: memory stays at the largest tensor. Needs numpy
alone. A model of 150 million parameters takes about two seconds:

    bench/random_model.py /data/m150 --layers 12 --width 1024 --heads 16

--preset names the shapes the benchmarks use:
    150m    12 layers, 1024 wide, 16 heads, feed-forward 4096
    mnist   8 layers, 256 wide, 8 heads, feed-forward 1024   (784 steps)
    cifar   16 layers, the same widths                       (3072 steps)
"""

import argparse
import json
import math
import pathlib
import struct

import numpy as np

PRESETS = {
    "150m": {"layers": 12, "width": 1024, "heads": 16, "ff": 4096},
    "mnist": {"layers": 8, "width": 256, "heads": 8, "ff": 1024},
    "cifar": {"layers": 16, "width": 256, "heads": 8, "ff": 1024},
}
# Height, width, channels: what a preset generates as --task image.
IMAGES = {"mnist": (28, 28, 1), "cifar": (32, 32, 3)}
N_MIXTURES = 10
ITEM_BYTES = {"f32": 4, "bf16": 2, "f16": 2}


def make_config(args):
    """Sections of config.json, derived sizes included."""
    image = args.task == "image"
    config = {
        "format_version": 4,
        "model": {
            "vocab_size": args.vocab,
            "d_model": args.width,
            "n_layers": args.layers,
            "n_heads": args.heads,
            "d_key": args.d_key or args.width // args.heads,
            "d_value": args.d_value or args.width // args.heads,
            "dropout": 0.0,
            "tied_head": False,
            "tokenizer": "byte",
            "arch": "decoder",
            "task": "image" if image else "lm",
            "n_classes": 0,
            "n_decoder_layers": 0,
            "cross_attention": args.attention,
            "input_dim": 0,
        },
        "layers": [args.attention],
        "positions": {
            "kind": args.positions,
            "combine": args.combine,
            "max_positions": args.max_positions,
            "rotary_place": args.rotary_place,
            "rotary_base": 10000.0,
        },
        "norm": {"place": args.norm, "kind": "layer", "final": True, "eps": 1e-5},
        "feed_forward": {
            "d_ff": args.ff or 4 * args.width,
            "activation": args.activation,
            "kind": "mlp",
        },
    }
    if args.attention == "linear":
        config["linear"] = {
            "feature_map": "elu1",
            "denominator": "exact",
            "eps": 1e-6,
            "n_dims": 0,
            "stabilise": False,
            "redraw": 1,
            "feature_seed": 0,
        }
    else:
        config["softmax"] = {
            "attention_dropout": 0.0,
            "local_context": 0,
            "topk": 32,
            "length_limit": 512,
        }
    if image:
        height, width, channels = IMAGES[args.preset]
        config["image"] = {
            "n_mixtures": N_MIXTURES,
            "height": height,
            "width": width,
            "channels": channels,
        }
    return config


def tensor_shapes(config):
    """Name -> shape in model order; weights are [out, in]."""
    model, positions = config["model"], config["positions"]
    d_model, d_ff, vocab = model["d_model"], config["feed_forward"]["d_ff"], model["vocab_size"]
    keys = model["n_heads"] * model["d_key"]
    values = model["n_heads"] * model["d_value"]
    concat = positions["combine"] == "concat"
    shapes = {"value_embedding.weight": (vocab, d_model // 2 if concat else d_model)}
    if positions["kind"] == "learned":
        shapes["pos_embedding.weight"] = (positions["max_positions"], d_model)
    for i in range(model["n_layers"]):
        for name, rows, columns in (
            ("attention.query_projection", keys, d_model),
            ("attention.key_projection", keys, d_model),
            ("attention.value_projection", values, d_model),
            ("attention.out_projection", d_model, values),
            ("linear1", d_ff, d_model),
            ("linear2", d_model, d_ff),
        ):
            shapes[f"layers.{i}.{name}.weight"] = (rows, columns)
            shapes[f"layers.{i}.{name}.bias"] = (rows,)
        for name in ("norm1", "norm2"):
            shapes[f"layers.{i}.{name}.weight"] = (d_model,)
            shapes[f"layers.{i}.{name}.bias"] = (d_model,)
    shapes["norm.weight"] = (d_model,)
    shapes["norm.bias"] = (d_model,)
    # Bytes' logits, or the parameters of a mixture of logistics.
    outputs = 3 * config["image"]["n_mixtures"] if "image" in config else vocab
    shapes["predictor.weight"] = (outputs, d_model)
    shapes["predictor.bias"] = (outputs,)
    return shapes


def random_tensor(random, name, shape):
    """Float32; scaled by 1 / sqrt(inputs) so that activations keep their size."""
    values = random.standard_normal(shape, dtype=np.float32)
    if len(shape) == 2:
        return values / math.sqrt(shape[1])
    values *= 0.02
    if "norm" in name and name.endswith("weight"):
        values += 1
    return values


def encode(values, dtype):
    """Little-endian bytes of float32 values as `dtype`."""
    if dtype == "f32":
        return values.astype("<f4").tobytes()
    if dtype == "f16":
        return values.astype("<f2").tobytes()
    bits = values.view(np.uint32)  # to nearest, ties to even
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()


def write_safetensors(path, shapes, dtype, seed):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in shapes.items():
        size = math.prod(shape) * ITEM_BYTES[dtype]
        header[name] = {
            "dtype": dtype.upper(),
            "shape": list(shape),
            "data_offsets": [offset, offset + size],
        }
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 64)
    random = np.random.default_rng(seed)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape in shapes.items():
            file.write(encode(random_tensor(random, name, shape), dtype))


def parse_arguments(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dir", type=pathlib.Path, help="folder to write")
    parser.add_argument("--preset", choices=PRESETS, help="sets the four sizes")
    parser.add_argument(
        "--task",
        choices=("lm", "image"),
        default="lm",
        help="image: of presets " + " and ".join(IMAGES),
    )
    parser.add_argument("--layers", type=int)
    parser.add_argument("--width", type=int)
    parser.add_argument("--heads", type=int)
    parser.add_argument("--ff", type=int, help="feed-forward width; 4 * width")
    parser.add_argument("--d-key", type=int, help="width / heads")
    parser.add_argument("--d-value", type=int, help="width / heads")
    parser.add_argument("--vocab", type=int, default=256)
    parser.add_argument("--attention", choices=("linear", "full"), default="linear")
    parser.add_argument("--dtype", choices=tuple(ITEM_BYTES), default="f32", help="of the file")
    parser.add_argument(
        "--positions", default="learned", choices=("none", "sinusoidal", "learned", "rotary")
    )
    parser.add_argument("--combine", choices=("add", "concat"), default="add")
    parser.add_argument("--rotary-place", choices=("before", "after"), default="before")
    parser.add_argument("--max-positions", type=int, default=1024)
    parser.add_argument("--norm", choices=("pre", "post"), default="pre")
    parser.add_argument("--activation", choices=("relu", "gelu"), default="gelu")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(arguments)
    sizes = PRESETS[args.preset] if args.preset else {"layers": 8, "width": 256, "heads": 8}
    for key, value in sizes.items():
        if getattr(args, key) is None:
            setattr(args, key, value)
    if args.task == "image" and args.preset not in IMAGES:
        parser.error("--task image: want --preset " + " or ".join(IMAGES))
    if min(args.layers, args.width, args.heads) < 1 or args.vocab < 256:
        parser.error("want layers, width, heads >= 1 and vocab >= 256")
    if args.width % args.heads and not (args.d_key and args.d_value):
        parser.error("want a width that is a multiple of heads, or --d-key and --d-value")
    return args


def main():
    args = parse_arguments()
    config = make_config(args)
    shapes = tensor_shapes(config)
    args.dir.mkdir(parents=True, exist_ok=True)
    (args.dir / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (args.dir / "tokenizer.json").write_text('{"format_version": 1, "type": "byte"}\n')
    write_safetensors(args.dir / "model.safetensors", shapes, args.dtype, args.seed)
    parameters = sum(math.prod(shape) for shape in shapes.values())
    print(f"{args.dir}: {parameters:,} parameters, {args.dtype}")


if __name__ == "__main__":
    main()
