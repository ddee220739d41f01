"""Writes tests/golden/published_models: for some types of published models a config.json and
the names and shapes of its tensors, as the classes of transformers give them. Weights are not
stored: tests/hostile fills the tensors with random numbers.

    python tests/golden/make_published_models.py
"""

import json
import pathlib
import tempfile

import torch
import transformers
from safetensors import safe_open

VOCAB = 97
SIZES = dict(vocab_size=VOCAB, hidden_size=16, num_hidden_layers=2, pad_token_id=None)
STACK = dict(SIZES, intermediate_size=20, num_attention_heads=4, num_key_value_heads=2)
EXPERTS = dict(num_experts=3, num_experts_per_tok=2, moe_intermediate_size=6)
DELTA = dict(
    layer_types=["linear_attention", "full_attention"], linear_num_key_heads=2,
    linear_num_value_heads=4, linear_key_head_dim=4, linear_value_head_dim=6,
)  # fmt: skip
MAMBA2 = dict(mamba_n_heads=4, mamba_d_head=8, mamba_d_state=5)
YARN = dict(
    rope_type="yarn", rope_theta=300.0, factor=4.0, original_max_position_embeddings=64,
)  # fmt: skip
VISION = dict(
    hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
    image_size=8, patch_size=4,
)  # fmt: skip
MODELS = {
    # Softmax attention, over windows too.
    "llama": dict(STACK, rope_parameters=YARN),
    "gpt2": dict(vocab_size=VOCAB, n_embd=16, n_layer=2, n_head=4, n_positions=80),
    "gemma3": dict(
        text_config=dict(STACK, head_dim=6, sliding_window=5), vision_config=VISION,
        mm_tokens_per_image=4,
    ),
    # Experts.
    "qwen3_moe": dict(STACK, **EXPERTS, head_dim=6),
    "jamba": dict(STACK, num_experts=3, attn_layer_period=2, attn_layer_offset=1),
    # Recurrent.
    "mamba": dict(SIZES),
    "mamba2": dict(SIZES, num_heads=4, head_dim=8, state_size=5, n_groups=2),
    "xlstm": dict(SIZES, num_heads=2, ffn_round_up_to_multiple_of=8, use_cache=False),
    # Hybrids.
    "falcon_h1": dict(STACK, **MAMBA2, head_dim=6, mamba_d_ssm=32),
    "nemotron_h": dict(
        STACK, layers_block_type=["linear_attention", "moe", "full_attention", "mlp"],
        head_dim=6, mamba_num_heads=4, mamba_head_dim=8, ssm_state_size=5, n_groups=2,
        n_routed_experts=3, num_experts_per_tok=2, moe_intermediate_size=6,
        moe_shared_expert_intermediate_size=6,
    ),
    "qwen3_next": dict(STACK, **EXPERTS, **DELTA, head_dim=8, shared_expert_intermediate_size=6),
    "olmo_hybrid": dict(STACK, **DELTA),
    "minimax": dict(STACK, head_dim=6, num_local_experts=3, block_size=8),
    "kimi_linear": dict(
        STACK | dict(num_key_value_heads=4), bos_token_id=1, eos_token_id=2, moe_intermediate_size=6, kv_lora_rank=6, qk_rope_head_dim=4, qk_nope_head_dim=6,
        v_head_dim=6, num_local_experts=3, num_experts_per_tok=2,
        linear_num_heads=2, linear_head_dim=6, layer_types=["linear_attention", "full_attention"],
    ),
    "lfm2_moe": dict(
        STACK, **EXPERTS, layer_types=["conv", "full_attention"], num_dense_layers=1
    ),
    "lfm3": dict(
        STACK, num_hidden_layers=3, head_dim=8, sliding_window=5, bos_token_id=1, eos_token_id=2,
        layer_types=["conv", "sliding_attention", "full_attention"],
    ),
    "recurrent_gemma": dict(STACK | dict(num_hidden_layers=3), attention_window_size=5),
}  # fmt: skip


def described(kind, keys):
    config = transformers.AutoConfig.for_model(kind, **keys)
    auto = transformers.AutoModelForCausalLM
    if kind == "gemma3":
        auto = transformers.AutoModelForImageTextToText
    with tempfile.TemporaryDirectory() as folder:
        auto.from_config(config).save_pretrained(folder)
        root = pathlib.Path(folder)
        with safe_open(root / "model.safetensors", "pt") as file:
            shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
        made = json.loads((root / "config.json").read_text())
    if kind == "qwen3_next":
        shapes.update(head_shapes(shapes))
        made["num_nextn_predict_layers"] = 1
    return {"config": made, "tensors": shapes}


def head_shapes(shapes):
    """The extra prediction head, which no class of the model reads: like the last layer."""
    last = f"model.layers.{SIZES['num_hidden_layers'] - 1}."
    width = SIZES["hidden_size"]
    found = {
        name.replace(last, "mtp.layers.0."): shape
        for name, shape in shapes.items()
        if name.startswith(last)
    }
    found["mtp.fc.weight"] = [width, 2 * width]
    for norm in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"):
        found[f"mtp.{norm}.weight"] = [width]
    return found


def main():
    torch.manual_seed(0)
    to = pathlib.Path(__file__).parent / "published_models"
    to.mkdir(exist_ok=True)
    for kind, keys in MODELS.items():
        text = json.dumps(described(kind, keys), indent=1, sort_keys=True)
        # Lists of numbers on one line.
        (to / f"{kind}.json").write_text(text + "\n")


main()
