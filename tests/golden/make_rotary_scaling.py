"""Writes rotary_scaling.json: the inverse frequencies and the factor of cosines and sines
that transformers computes for scaled rotary positions, read by
tests/python/operators/test_rotary_scaling.py. Run with a Python that has transformers:

    python tests/golden/make_rotary_scaling.py [folder]
"""

import json
import pathlib
import sys

import transformers
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

# Width of a head, base, and rope_parameters as published configurations have them.
CASES = {
    "linear 4": (64, 1e4, {"rope_type": "linear", "factor": 4.0}),
    "Llama 3.1": (
        128,
        5e5,
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    ),
    "Llama 3.2": (
        64,
        5e5,
        {
            "rope_type": "llama3",
            "factor": 32.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    ),
    "Qwen2.5 yarn": (
        128,
        1e6,
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
    ),
    "DeepSeek-V2": (
        64,
        1e4,
        {
            "rope_type": "yarn",
            "factor": 40.0,
            "beta_fast": 32,
            "beta_slow": 1,
            "mscale": 0.707,
            "mscale_all_dim": 0.5,
            "original_max_position_embeddings": 4096,
        },
    ),
    "LFM3": (128, 1e6, {"rope_type": "proportional", "partial_rotary_factor": 0.5}),
    "proportional of odd parts": (
        60,
        1e4,
        {"rope_type": "proportional", "partial_rotary_factor": 0.3, "factor": 4.0},
    ),
    "gpt-oss": (
        64,
        1.5e5,
        {
            "rope_type": "yarn",
            "factor": 32.0,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "truncate": False,
            "original_max_position_embeddings": 4096,
        },
    ),
}


def main() -> None:
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    found = {"transformers": transformers.__version__, "cases": {}}
    for name, (width, base, parameters) in CASES.items():
        config = LlamaConfig(
            hidden_size=4 * width,
            num_attention_heads=4,
            head_dim=width,
            max_position_embeddings=131072,
            rope_parameters={"rope_theta": base, **parameters},
        )
        frequencies, magnitude = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, "cpu")
        found["cases"][name] = {
            "d_key": width,
            "base": base,
            "parameters": parameters,
            "frequencies": frequencies.double().tolist(),
            "magnitude": magnitude,
        }
    text = json.dumps(found, indent=1)
    (folder / "rotary_scaling.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
