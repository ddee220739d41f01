"""Model directories of the recurrent families with random weights, about 150 million
parameters, and the amount of their work. They are made by tarn's own modules, since
each family has its own tensors."""

import json

import models
import runtime_sides

# The width of the feed-forward part makes up for what a mixer has more or less than four
# matrices [D, D]; heads of 128 as published models of these kinds have them.
SHAPES = {
    "gdn": {"d_ff": 3584},
    "mamba2": {"d_ff": 3584},
    "rwkv7": {"d_ff": 3840},
}
_SIZES = {"vocab_size": 256, "d_model": 1024, "n_layers": 12, "n_heads": 8}
_QUICK = {"d_model": 32, "n_layers": 1, "n_heads": 2, "d_ff": 64}
# FLOP of a token and head: a step's over K V; a chunk's over K V and over C (K + V), C = 16,
# as the kernels' cases count them.
_STEP = {"gdn": 7, "mamba2": 5, "rwkv7": 9}
_CHUNK = {"gdn": (6, 2), "mamba2": (4, 1), "rwkv7": (8, 4)}


def folder(kind, quick=False):
    """The directory of a model of this kind, written once."""
    import tarn

    path = models.folder() / f"{'quick' if quick else 'm150'}-{kind}"
    if not (path / "model.safetensors").is_file():
        sizes = {**_SIZES, **SHAPES[kind], **(_QUICK if quick else {})}
        tarn.save_model(tarn.models.LanguageModel(attention=kind, positions="none", **sizes), path)
    return path


class Work(runtime_sides.Work):
    """FLOP and bytes of a family's model, from its configuration and its tensors."""

    def __init__(self, path, kind):
        import tarn

        super().__init__(path)
        config = json.loads((path / "config.json").read_text())
        shapes = tarn.models.weight_shapes(config)
        self.layer_weights = sum(
            shape[0] * shape[1]
            for name, shape in shapes.items()
            if name.startswith("layers.") and len(shape) == 2 and name.endswith("weight")
        )
        self._kind = kind

    def step_flop(self):
        products = 2.0 * (self.layer_weights + self.head_weights)
        return products + _STEP[self._kind] * self.per_head

    def prefill_flop(self, tokens):
        squares, widths = _CHUNK[self._kind]
        token = 2.0 * self.layer_weights + squares * self.per_head + widths * self.per_head_chunk
        return tokens * token + 2.0 * self.head_weights
