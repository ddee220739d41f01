"""Model directories: what `tarn train` writes and `tarn generate` reads."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import torch

from tarn import _library
from tarn._files import write_bytes, write_tensors
from tarn._json import strict
from tarn._paths import AnyPath, shown
from tarn._weight_files import read_weights

_library.ensure()

_WITH_CLASSES = ("classify", "ctc")
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)  # what the runtime reads
BYTE_TOKENIZER = '{"format_version": 1, "type": "byte"}\n'


def save_model(
    module: torch.nn.Module,
    dir: AnyPath,
    *,
    tokenizer: AnyPath | None = None,
    labels: list[str] | None = None,
) -> None:
    """Writes a model of `tarn.models` as a directory that `tarn generate`,
    `tarn.runtime` and `load_model` open.

    Args:
        module: LanguageModel, Classifier, FrameClassifier, Seq2Seq,
            RecurrentModel or CnnModel.
        dir: created if missing; its files are replaced by rename.
        tokenizer: tokenizer.json to copy, or a model directory or GGUF file, whose
            tokenizer's files, chat template and generation settings are copied; None: the
            byte tokenizer, where the configuration says "byte", and no file where it says
            "ids".
        labels: names of a classifier's classes, one each; None: those it holds, else
            "0", "1", ... (for frames: "", the blank, "1", ...)

    Weights are written as float32. Raises ValueError for a module without a
    configuration or with weights that do not match it (such as replaced
    projections: merge them first), and OSError.
    """
    from tarn.models._config import config_text

    config: Any = getattr(module, "config", None)
    if not isinstance(config, dict) or "arch" not in config:
        raise ValueError(
            f"save_model: module: want a model of tarn.models, got {type(module).__name__}"
        )
    tensors = module.state_dict()
    require_weights("save_model: module", config, tensors)
    files: dict[str, bytes] = {}
    if tokenizer is not None:
        files = tokenizer_files(pathlib.Path(os.fsdecode(tokenizer)))
    elif config["tokenizer"] == "byte":
        files["tokenizer.json"] = BYTE_TOKENIZER.encode()
    elif config["tokenizer"] != "ids":
        raise ValueError(
            f"save_model: tokenizer: want a tokenizer.json of kind {config['tokenizer']!r}, got None"
        )
    folder = pathlib.Path(os.fsdecode(dir))
    folder.mkdir(parents=True, exist_ok=True)
    write_weights(config, tensors, folder)
    for name, data in files.items():
        write_bytes(data, folder / name)
    if config["task"] in _WITH_CLASSES:
        blank = config["task"] == "ctc"
        names = labels or getattr(module, "labels", None)
        if names is None:
            names = [str(index) for index in range(config["n_classes"])]
            names[0] = "" if blank else names[0]
        if blank and names[0] != "":
            raise ValueError(f"save_model: labels: want '' first, the blank, got {names[0]!r}")
        if len(set(names)) != config["n_classes"]:
            raise ValueError(
                f"save_model: labels: want {config['n_classes']} different names, got {len(set(names))}"
            )
        text = json.dumps(list(names), ensure_ascii=False) + "\n"
        write_bytes(text.encode(), folder / "labels.json")
    # Written last: a directory with a configuration is complete.
    write_bytes(config_text(config).encode(), folder / "config.json")


def require_weights(
    where: str, config: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]
) -> None:
    """Raises ValueError where a model's tensors are not those of its configuration."""
    from tarn.models._config import weight_shapes

    shapes = weight_shapes(config)
    given = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if given != shapes:
        names = sorted({name for name, _ in set(given.items()) ^ set(shapes.items())})
        raise ValueError(
            f"{where}: want the weights of its configuration, got differences in "
            + ", ".join(names[:8])
        )


def write_weights(
    config: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], folder: pathlib.Path
) -> None:
    """model.safetensors in the order of the configuration, float32."""
    from tarn.models._config import weight_shapes

    ordered = {name: tensors[name].detach().float() for name in weight_shapes(config)}
    write_tensors(ordered, folder / "model.safetensors", {"format": "pt"})


def tokenizer_files(source: pathlib.Path) -> dict[str, bytes]:
    """The files to copy, by name."""
    path = _path_tensor(source)
    if source.is_file() and not torch.ops.tarn.is_published(path):
        return {"tokenizer.json": source.read_bytes()}
    found = {
        name: torch.ops.tarn.model_companion(path, name)
        for name in torch.ops.tarn.model_companions()
    }
    return {name: bytes(data.tolist()) for name, data in found.items() if data is not None}


def _check_labels(names: Any, config: Mapping[str, Any], where: str) -> None:
    """The runtime's rules: different texts, one for each class, '' for the blank."""
    classes = config["n_classes"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{where}: want a list of texts, got another value")
    blank = config["task"] == "ctc"
    for name in names[1:] if blank else names:
        if not name or any(mark in name for mark in "\n\r\t"):
            raise ValueError(f"{where}: want texts without tabs and line ends, got {ascii(name)}")
    if len(set(names)) != classes or len(names) != classes:
        raise ValueError(f"{where}: want {classes} different names, got {len(set(names))}")
    if blank and names[0] != "":
        raise ValueError(f"{where}: want '' first, the blank, got {ascii(names[0])}")


def _path_tensor(path: pathlib.Path) -> torch.Tensor:
    return torch.tensor(list(os.fsencode(path)), dtype=torch.uint8)


def _load_published(folder: pathlib.Path) -> torch.nn.Module:
    """The importers' tables name and cut the weights; they are read into the module's
    own tensors, so that memory holds them once."""
    from tarn.models import make_model

    path = _path_tensor(folder)
    model = make_model(json.loads(torch.ops.tarn.read_model_config(path)))
    held = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    dense = {
        name: tensor
        if tensor.dtype == torch.float32 and tensor.is_contiguous()
        else torch.empty(tensor.shape)
        for name, tensor in held.items()
    }
    torch.ops.tarn.read_model_weights(path, list(dense), list(dense.values()))
    for name, tensor in held.items():
        if dense[name] is not tensor:
            tensor.copy_(dense[name])
    return model.eval()


def load_model(dir: AnyPath) -> torch.nn.Module:
    """The model of a directory or of a GGUF file as a module of `tarn.models`, in
    evaluation mode, on the CPU, float32.

    The directory is tarn's own or that of a published model in Hugging Face's form
    (docs/published-models.md), whose weights get tarn's names, as do those of a file
    (docs/gguf.md). Such a module trains
    like any other, `save_model` writes it as tarn's own directory, and `tarn export`
    makes a published one of that. Raises ValueError naming file and key or tensor,
    and OSError.
    """
    from tarn.models import make_model
    from tarn.models._config import weight_shapes

    folder = pathlib.Path(os.fsdecode(dir))
    if torch.ops.tarn.is_published(_path_tensor(folder)):
        return _load_published(folder)
    path = folder / "config.json"
    config = strict(path.read_bytes(), shown(path))
    if not isinstance(config, dict):
        raise ValueError(f"{shown(folder / 'config.json')}: want an object, got another value")
    version = config.get("format_version")
    if isinstance(version, bool) or version != 4:
        raise ValueError(
            f"{shown(folder / 'config.json')}: format_version: want 4, got {version!r}"
        )
    model = make_model(config)
    tensors, files = read_weights(folder)
    for name, tensor in tensors.items():
        if tensor.dtype not in _DTYPES:
            raise ValueError(f"{files[name]}: {name}: want F32, BF16 or F16, got {tensor.dtype}")
    # Modules have no extra prediction head.
    tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith("mtp.")}
    shapes = weight_shapes(model.config)  # type: ignore[arg-type]
    for name in sorted({*tensors, *shapes}):
        given = tuple(tensors[name].shape) if name in tensors else None
        if given != shapes.get(name):
            where = files.get(name, shown(folder / "model.safetensors"))
            raise ValueError(
                f"{where}: {name}: want {list(shapes[name]) if name in shapes else 'no such tensor'}, "
                f"got {list(given) if given is not None else 'none'}"
            )
    model.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
    labels = folder / "labels.json"
    if model.config["task"] in _WITH_CLASSES and labels.is_file():  # type: ignore[index]
        names = strict(labels.read_bytes(), shown(labels))
        _check_labels(names, model.config, shown(labels))  # type: ignore[arg-type]
        model.labels = names  # type: ignore[assignment]
    return model.eval()
