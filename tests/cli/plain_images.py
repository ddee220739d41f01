"""Image models and image files with numpy and no code of tarn: IDX written by
its definition, bits/dim of the mixture of logistics in float64."""

import json
import pathlib
import struct

import numpy as np
import plain_model


def idx_bytes(images):
    """images: uint8 [n, H, W] or [n, H, W, 3]."""
    header = struct.pack(f">HBB{images.ndim}I", 0, 8, images.ndim, *images.shape)
    return header + images.tobytes()


def read_idx(data):
    zero, kind, dims = struct.unpack(">HBB", data[:4])
    assert zero == 0 and kind == 8
    shape = struct.unpack(f">{dims}I", data[4 : 4 + 4 * dims])
    body = data[4 + 4 * dims :]
    assert len(body) == np.prod(shape)
    return np.frombuffer(body, np.uint8).reshape(shape)


def read_model(folder):
    """(config, name -> weights) of a model directory with float32 weights."""
    data = (pathlib.Path(folder) / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    weights = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        values = np.frombuffer(data[8 + length + begin : 8 + length + end], "<f4")
        weights[name] = values.reshape(entry["shape"])
    config = json.loads((pathlib.Path(folder) / "config.json").read_text())
    return _side_by_side(config), weights


def _side_by_side(config):
    """The keys of all sections, under the names of the command line."""
    names = {
        ("norm", "eps"): "norm_eps",
        ("norm", "place"): "norm",
        ("norm", "final"): "final_norm",
        ("positions", "kind"): "positions",
        ("positions", "combine"): "position_combine",
    }
    flat = {"attention": config["layers"][0]}
    for section, keys in config.items():
        if not isinstance(keys, dict):
            continue
        for key, value in keys.items():
            short = f"image_{key}" if section == "image" and key != "n_mixtures" else key
            flat[names.get((section, key), short)] = value
    return flat


def byte_nats(params, targets):
    """-ln p of each byte; params [T, 3 K], targets [T]. The discretised mixture
    of logistics with log-scales of at least -7; a component's probability of at
    most 1e-5 is its density times the width of a byte."""
    logits, means, log_scales = np.split(params, 3, axis=-1)
    y = 2 * targets[:, None] / 255 - 1
    scales = np.exp(np.maximum(log_scales, -7))
    sigma = lambda x: 1 / (1 + np.exp(-np.clip(x, -700, 700)))
    upper, lower = sigma((y - means + 1 / 255) / scales), sigma((y - means - 1 / 255) / scales)
    p = np.where(y < -0.999, upper, np.where(y > 0.999, 1 - lower, upper - lower))
    z = np.abs((y - means) / scales)  # the density is even
    density = -z - np.log(scales) - 2 * np.log1p(np.exp(-z)) - np.log(127.5)
    log_p = np.where(p > 1e-5, np.log(np.maximum(p, 1e-30)), density)
    log_weights = logits - np.logaddexp.reduce(logits, -1, keepdims=True)
    return -np.logaddexp.reduce(log_weights + log_p, -1)


def bits_per_dim(folder, images, start=1):
    """Bits per dimension [n] of images [n, H, W], from byte `start` on."""
    config, weights = read_model(folder)
    found = []
    for image in images:
        tokens = image.reshape(-1).astype(np.int64)
        params = plain_model.logits(config, weights, tokens[:-1])
        nats = byte_nats(params[start - 1 :], tokens[start:])
        found.append(nats.mean() / np.log(2))
    return np.array(found)
