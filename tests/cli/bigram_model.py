"""Published directories that say what a test tells them to: every token has one that
follows it. Written with numpy alone, in Llama's form: attention and feed-forward write
nothing, so that the head sees the token's own row."""

import json
import pathlib

import numpy as np
import plain_model

SPECIAL = ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]
# Each a token, found in texts too; the last three spell a call of a tool.
CALL = '{"name": "weather", "arguments": {"city": "Bern"}}'
NOT_SPECIAL = ["<think>", "</think>", "<tool_call>", CALL, "</tool_call>"]

# Turns as <|role|>text<|end|>; thinking only in an answer that no message follows.
FORGETS_THINKING = (
    "{% for m in messages %}<|{{ m.role }}|>"
    "{% if m.role == 'assistant' and m.reasoning_content is defined and loop.last %}"
    "<think>{{ m.reasoning_content }}</think>{% endif %}"
    "{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>"
    "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
    "{% endif %}"
)
# The same with tools, and calls of them as Qwen3's template writes them.
WITH_TOOLS = (
    "{% if tools %}<|system|>{{ tools | tojson }}<|end|>{% endif %}"
    + FORGETS_THINKING.replace(
        "{{ m.content }}",
        "{{ m.content }}{% for c in m.tool_calls %}<tool_call>"
        '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}'
        "</tool_call>{% endfor %}",
    )
)
KEEPS_THINKING = FORGETS_THINKING.replace(" and loop.last", "")


def _alphabet():
    """GPT-2's character for every byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {
        byte: chr(256 + i) for i, byte in enumerate(others)
    }


def tokenizer_json():
    added = [
        {
            "id": 256 + i,
            "content": content,
            "special": content in SPECIAL,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
        }
        for i, content in enumerate(SPECIAL + NOT_SPECIAL)
    ]
    return {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel"},
        "model": {
            "type": "BPE",
            "vocab": {character: byte for byte, character in _alphabet().items()},
            "merges": [],
        },
    }


def id_of(token):
    tokens = SPECIAL + NOT_SPECIAL
    return 256 + tokens.index(token) if token in tokens else ord(token)


def write_bigram_model(folder, follows, template=FORGETS_THINKING, **files):
    """follows: token -> the one after it; others are followed by themselves. files: more
    JSON files of the directory, by name without .json; None leaves tokenizer.json out."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    size = 256 + len(SPECIAL) + len(NOT_SPECIAL)
    head = np.eye(size, dtype=np.float32)
    for before, after in follows.items():
        head[:, id_of(before)] = 0
        head[id_of(after), id_of(before)] = 1
    layer = "model.layers.0."
    weights = {
        "model.embed_tokens.weight": np.eye(size),
        "model.norm.weight": np.ones(size),
        "lm_head.weight": head,
        layer + "input_layernorm.weight": np.ones(size),
        layer + "post_attention_layernorm.weight": np.ones(size),
        layer + "mlp.gate_proj.weight": np.zeros((4, size)),
        layer + "mlp.up_proj.weight": np.zeros((4, size)),
        layer + "mlp.down_proj.weight": np.zeros((size, 4)),
        layer + "self_attn.q_proj.weight": np.zeros((2, size)),
        layer + "self_attn.k_proj.weight": np.zeros((2, size)),
        layer + "self_attn.v_proj.weight": np.zeros((2, size)),
        layer + "self_attn.o_proj.weight": np.zeros((size, 2)),
    }
    plain_model.write_safetensors(
        folder / "model.safetensors",
        {name: array.astype(np.float32) for name, array in weights.items()},
    )
    config = {
        "model_type": "llama",
        "vocab_size": size,
        "hidden_size": size,
        "intermediate_size": 4,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "head_dim": 2,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        "hidden_act": "silu",
        "eos_token_id": id_of("<|end|>"),
    }
    files = {"config": config, "tokenizer": tokenizer_json(), **files}
    for name, content in files.items():
        if content is not None:
            (folder / f"{name}.json").write_text(json.dumps(content))
    if template is not None:
        (folder / "chat_template.jinja").write_text(template)
    return folder
