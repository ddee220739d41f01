"""Random models of transformers with an extra prediction head, written as their publishers
do, and what the head gives. Imports torch and transformers: for test files that skip first."""

import json
import pathlib
from collections.abc import Callable

import published
import safetensors.torch
import torch
import transformers
from transformers.modeling_layers import MtpModel

# Names of the class that defines the head, and of published files.
RENAMED = [
    ("layers.0.mtp_block.", "mtp.layers.0."),
    ("layers.0.enorm.", "mtp.pre_fc_norm_embedding."),
    ("layers.0.hnorm.", "mtp.pre_fc_norm_hidden."),
    ("layers.0.eh_proj.", "mtp.fc."),
    ("layers.0.post_norm.", "mtp.norm."),
]
COUNTS = {"qwen3_next": "num_nextn_predict_layers"}
COUNT = "mtp_num_hidden_layers"


def model_and_head(
    kind: str, keys: dict[str, object]
) -> tuple[transformers.PreTrainedModel, MtpModel]:
    model = published.random_model(kind, keys)
    model.config.num_mtp_layers = 1
    model.config.mtp_layer_types = ["full_attention"]
    held = {id(parameter) for parameter in model.parameters()}
    head = MtpModel(model, 1).eval()
    with torch.no_grad():
        for parameter in head.parameters():
            if id(parameter) in held:
                continue
            if parameter.dim() > 1:
                parameter.normal_(0, 1 / parameter.shape[-1] ** 0.5)
            else:
                parameter.normal_(0, 0.3)
    return model, head


def head_tensors(head: MtpModel) -> dict[str, torch.Tensor]:
    tensors = {}
    for name, tensor in head.state_dict().items():
        for own, theirs in RENAMED:
            if name.startswith(own):
                tensors[theirs + name.removeprefix(own)] = tensor.clone()
    return tensors


def of_each_expert(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same with tensors of single experts, as files of Qwen3-Next have them."""
    split = {}
    for name, tensor in tensors.items():
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            split[name] = tensor
            continue
        root, kind = name.rsplit(".", 1)
        for i, matrix in enumerate(tensor):
            parts = matrix.chunk(2) if kind == "gate_up_proj" else [matrix]
            names = ["gate_proj", "up_proj"] if kind == "gate_up_proj" else [kind]
            for part, of in zip(parts, names, strict=True):
                split[f"{root}.{i}.{of}.weight"] = part.clone()
    return split


def save(
    kind: str, model: transformers.PreTrainedModel, head: MtpModel, folder: pathlib.Path
) -> pathlib.Path:
    model.save_pretrained(folder)
    tensors = head_tensors(head)
    if kind == "qwen3_next":
        tensors = of_each_expert(tensors)
    change_weights(folder, lambda weights: weights.update(tensors))
    config = json.loads((folder / "config.json").read_text())
    for key in ("num_mtp_layers", "mtp_layer_types"):
        config.pop(key, None)
    config[COUNTS.get(kind, COUNT)] = 1
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def change_weights(
    folder: pathlib.Path, change: Callable[[dict[str, torch.Tensor]], object]
) -> None:
    path = folder / "model.safetensors"
    weights = safetensors.torch.load_file(path)
    change(weights)
    safetensors.torch.save_file(weights, path, {"format": "pt"})


@torch.no_grad()
def draft_logits(
    model: transformers.PreTrainedModel, head: MtpModel, tokens: list[int], count: int
) -> torch.Tensor:
    """Logits [count, vocabulary] of the tokens that the head drafts after a text, each the
    likeliest: the class's layer over all of the text at once, and again for each token."""
    ids = torch.tensor(tokens)[None]
    hidden = model.get_decoder()(ids).last_hidden_state[:, :-1]
    ids = ids[:, 1:]
    rows = []
    for _ in range(count):
        cache = transformers.cache_utils.MtpCache(config=model.config.get_mtp_config())
        positions = torch.arange(1, ids.shape[1] + 1)[None]
        made = head.forward_layer(0, hidden, positions, cache, input_ids=ids)
        rows.append(head.shared_head(made[0, -1]))
        ids = torch.cat([ids, rows[-1].argmax()[None, None]], 1)
        hidden = torch.cat([hidden, made[:, -1:]], 1)
    return torch.stack(rows)
