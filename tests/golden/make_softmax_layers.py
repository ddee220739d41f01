"""Writes softmax_layers.safetensors: random attention layers of transformers, what they
read and what they give, read by tests/python/modules/test_softmax_layers.py. Run with a
Python that has torch, transformers and safetensors:

    python tests/golden/make_softmax_layers.py [folder]

Every layer is that of a model with one layer, whose hidden rows are caught before and after
its attention. Names of tensors begin with the name of the case.
"""

import contextlib
import pathlib
import sys
from typing import Any

import torch
import transformers
from safetensors.torch import save_file

TOKENS = 24
SIZES = dict(
    vocab_size=16, hidden_size=32, num_hidden_layers=1, num_attention_heads=4,
    intermediate_size=16, max_position_embeddings=64, attn_implementation="eager",
    pad_token_id=0, bos_token_id=0, eos_token_id=0,
)  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 100.0, "factor": 4.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 16,
}  # fmt: skip
YARN = {
    "rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "beta_fast": 4.0,
    "beta_slow": 1.0, "truncate": False, "original_max_position_embeddings": 16,
}  # fmt: skip
PLAIN = {"rope_type": "default", "rope_theta": 100.0}

# Model and options beyond SIZES.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", dict(num_key_value_heads=2, rope_parameters=LLAMA3)),
    "qwen2": ("Qwen2", dict(num_key_value_heads=2, rope_parameters=PLAIN)),
    "qwen3": ("Qwen3", dict(num_key_value_heads=2, head_dim=10, rope_parameters=PLAIN)),
    "olmo2": ("Olmo2", dict(num_key_value_heads=2, rope_parameters=PLAIN)),
    "mistral": (
        "Mistral",
        dict(num_key_value_heads=1, sliding_window=5, rope_parameters=PLAIN),
    ),
    "gemma2": (
        "Gemma2",
        dict(
            num_key_value_heads=2, head_dim=8, attn_logit_softcapping=0.4,
            query_pre_attn_scalar=5, sliding_window=7, layer_types=["sliding_attention"],
            rope_parameters=PLAIN,
        ),
    ),
    "gpt_oss": (
        "GptOss",
        dict(
            num_key_value_heads=2, head_dim=8, sliding_window=6, num_local_experts=2,
            num_experts_per_tok=1, layer_types=["sliding_attention"], rope_parameters=YARN,
        ),
    ),
    "deepseek": (
        "DeepseekV3",
        dict(
            num_key_value_heads=4, q_lora_rank=12, kv_lora_rank=10, qk_nope_head_dim=6,
            qk_rope_head_dim=4, v_head_dim=7, first_k_dense_replace=1, n_routed_experts=2,
            num_experts_per_tok=1, n_group=1, topk_group=1, moe_intermediate_size=8,
            n_shared_experts=1, rope_parameters=PLAIN,
        ),
    ),
}  # fmt: skip


class Caught(Exception):
    """Ends the pass after the attention: the rest does not take float64."""


def layer_of(name: str) -> dict[str, torch.Tensor]:
    """The weights, rows before and rows after of one case."""
    model_name, options = CASES[name]
    config = getattr(transformers, f"{model_name}Config")(**SIZES | options)
    torch.manual_seed(len(name) + sum(map(ord, name)))
    model = getattr(transformers, f"{model_name}Model")(config).double().eval()
    caught: dict[str, torch.Tensor] = {}

    def catch(module, args, kwargs, output):
        caught["input"] = kwargs.get("hidden_states", args[0] if args else None)
        caught["output"] = output[0]
        raise Caught

    attention = model.layers[0].self_attn
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.normal_(std=1.0 if parameter.dim() == 1 else 0.3)
            parameter.copy_(parameter.float())
    attention.register_forward_hook(catch, with_kwargs=True)
    with torch.no_grad(), contextlib.suppress(Caught):
        model(inputs_embeds=torch.randn(2, TOKENS, 32, dtype=torch.float64))
    weights = {f"{name}.{key}": value for key, value in attention.state_dict().items()}
    caught = {f"{name}.{key}": value for key, value in caught.items()}
    return {key: value.float().contiguous() for key, value in (weights | caught).items()}


def main() -> None:
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    tensors: dict[str, torch.Tensor] = {}
    for name in CASES:
        tensors |= layer_of(name)
    save_file(
        tensors,
        folder / "softmax_layers.safetensors",
        metadata={"transformers": transformers.__version__},
    )


if __name__ == "__main__":
    main()
