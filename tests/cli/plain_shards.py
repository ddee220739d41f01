"""A weight file cut into shards with an index, without any code of tarn."""

import json
import pathlib
import struct


def split(folder: pathlib.Path, count: int) -> list[str]:
    """Replaces model.safetensors by `count` shards, tensors by turns; their names."""
    data = (folder / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    names = [f"model-{i + 1:05}-of-{count:05}.safetensors" for i in range(count)]
    weight_map = {}
    for i, name in enumerate(names):
        entries, parts, end = {}, [], 0
        for tensor in list(header)[i::count]:
            begin, stop = header[tensor]["data_offsets"]
            parts.append(data[8 + length + begin : 8 + length + stop])
            entries[tensor] = {
                **header[tensor],
                "data_offsets": [end, end + len(parts[-1])],
            }
            end += len(parts[-1])
            weight_map[tensor] = name
        text = json.dumps(entries).encode()
        (folder / name).write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))
    index = {"metadata": {"total_size": len(data) - 8 - length}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "model.safetensors").unlink()
    return names
