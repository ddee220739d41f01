"""tarn's language models as transformers' classes: for its Trainer, `generate`, pipelines
and lm-evaluation-harness. Needs transformers 5.

    from tarn.huggingface import TarnForCausalLM

    model = TarnForCausalLM.from_pretrained("models/demo")  # tarn's own or a published directory
    model.generate(tokens, max_new_tokens=20)
    model.save_pretrained("models/mine")  # what tarn generate and tarn.runtime open

The weights are those of `tarn.models.LanguageModel`, under its names. Nothing here reads or
writes pickles.
"""

from __future__ import annotations

import difflib
import json
import os
import pathlib
from typing import Any, cast

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GenerationConfig,
    GenerationMixin,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.modeling_outputs import CausalLMOutputWithPast

from tarn import _tables as tables
from tarn import recurrent
from tarn._files import write_bytes
from tarn._model_files import (
    BYTE_TOKENIZER,
    load_model,
    require_weights,
    tokenizer_files,
    write_weights,
)
from tarn._paths import AnyPath, shown
from tarn.masking import TriangularCausalMask
from tarn.models import LanguageModel, finish_config
from tarn.models._config import config_text
from tarn.models._parts import first_places, mask_of
from tarn.models._tokens import want_axes
from tarn.ops._checks import type_error, value_error

__all__ = ["TarnCache", "TarnConfig", "TarnForCausalLM"]

_SETTINGS = "generation_config.json"
# Options of transformers' methods about downloads, shards and programs for attention.
_WITHOUT_EFFECT = {
    "adapter_kwargs", "attn_implementation", "cache_dir", "code_revision", "force_download", "local_files_only",
    "low_cpu_mem_usage", "max_shard_size", "revision", "safe_serialization", "save_original_format",
    "save_peft_format", "token", "trust_remote_code", "use_safetensors",
}  # fmt: skip


def _own_keys() -> set[str]:
    """Keys of a tarn configuration, and its sections."""
    fields = tables.config_fields()
    return {*fields, *(field["section"] for field in fields.values()), "layers", "format_version"}


def _want_no_effect(method: str, options: dict[str, Any]) -> None:
    for key, value in options.items():
        if value and key not in _WITHOUT_EFFECT and not key.startswith("_"):
            raise value_error(f"TarnForCausalLM.{method}", key, "none", repr(value))


class TarnConfig(PreTrainedConfig):
    """The configuration of a tarn language model.

    keys: those of config.json (docs/model-format.md), in sections or by name, as in
    `tarn.models.LanguageModel`; others are transformers' own, as `bos_token_id`.
    `tarn` of the object is the finished configuration. Raises ValueError naming the key.
    """

    model_type = "tarn"
    keys_to_ignore_at_inference = ["past_key_values"]

    def __init__(self, tarn: dict[str, Any] | None = None, **keys: Any) -> None:
        own = _own_keys()
        given = {key: keys.pop(key) for key in list(keys) if key in own}
        for key in keys:
            near = difflib.get_close_matches(key, own, 1, 0.85)
            if near and not hasattr(PreTrainedConfig, key):
                raise ValueError(
                    f"TarnConfig: {key}: want a known key (did you mean {near[0]!r}?), got {key!r}"
                )
        given.pop("format_version", None)
        super().__init__(**keys)
        self.tarn = finish_config(tarn, **given)
        # By the names that transformers and the programs around it ask for.
        self.vocab_size = self.tarn["vocab_size"]
        self.hidden_size = self.tarn["d_model"]
        self.num_hidden_layers = self.tarn["n_layers"]
        self.num_attention_heads = self.tarn["n_heads"]
        if self.tarn["positions"] == "learned":
            self.max_position_embeddings = self.tarn["max_positions"]
        # The module of a tied head reads the embedding: there is nothing to tie.
        self.tie_word_embeddings = False


class TarnCache:
    """What a model remembers of B sequences: `past_key_values` of its outputs. It is a
    value: a call returns another one, so a kept cache is a point to return to.

    states: of `LanguageModel.prefill` and `step`. columns: of the tokens so far, padding
    included.
    """

    is_compileable = False

    def __init__(self, states: Any, columns: int) -> None:
        self.states = states
        self.columns = columns

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.columns

    def reorder(self, rows: torch.Tensor) -> TarnCache:
        """Row i becomes row rows[i]."""
        return TarnCache(recurrent.reorder(self.states, rows.cpu()), self.columns)


class TarnForCausalLM(PreTrainedModel, GenerationMixin):
    """A `tarn.models.LanguageModel` as transformers calls it.

    config: a TarnConfig of a decoder. model: the module that becomes this one, with its
    weights; None: a new one. Its children are shared, with their names.
    """

    config_class = TarnConfig
    base_model_prefix = ""
    main_input_name = "input_ids"
    accepts_loss_kwargs = True  # num_items_in_batch
    _is_stateful = True  # a state cannot be cut back, as assisted generation would
    _supports_sdpa = _supports_flash_attn = False
    value_embedding: torch.nn.Module
    predictor: torch.nn.Module

    def __init__(self, config: TarnConfig, model: LanguageModel | None = None) -> None:
        super().__init__(config)
        model = LanguageModel(config.tarn) if model is None else model
        if model.config["task"] != "lm":
            raise ValueError(
                f"TarnForCausalLM: task: want 'lm', got {model.config['task']!r}: transformers' "
                "Trainer and generate take tokens"
            )
        # One registry of children for both, so that a replaced child is replaced in both.
        self._modules = model._modules
        self._language_model = (model,)  # in a tuple: no child
        self._companions: dict[str, bytes] = {}
        self.post_init()

    @property
    def language_model(self) -> LanguageModel:
        """The module of `tarn.models` with the same children."""
        model = self._language_model[0]
        if model._modules is not self._modules:  # a copy, with its own children
            model = LanguageModel.__new__(LanguageModel)
            model.__dict__ = {**self._language_model[0].__dict__, "_modules": self._modules}
            self._language_model = (model,)
        return model

    def _init_weights(self, module: torch.nn.Module) -> None:
        """LanguageModel has done so."""

    def get_input_embeddings(self) -> torch.nn.Module:
        return self.value_embedding

    def set_input_embeddings(self, value: torch.nn.Module) -> None:
        self.value_embedding = value

    def get_output_embeddings(self) -> torch.nn.Module:
        return self.predictor

    def resize_token_embeddings(
        self, new_num_tokens: int | None = None, *arguments: Any, **options: Any
    ) -> torch.nn.Module:
        """The embedding; raises ValueError for another number than it has."""
        if new_num_tokens not in (None, self.config.vocab_size):
            raise value_error(
                "TarnForCausalLM.resize_token_embeddings",
                "new_num_tokens",
                f"vocab_size of the configuration, {self.config.vocab_size}",
                new_num_tokens,
            )
        return self.value_embedding

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False  # TarnCache

    def _reorder_cache(self, past_key_values: TarnCache, beam_idx: torch.Tensor) -> TarnCache:
        return past_key_values.reorder(beam_idx)

    def train(self, mode: bool = True) -> TarnForCausalLM:
        super().train(mode)
        self._language_model[0].training = mode
        return self

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        past_key_values: TarnCache | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int = 0,
        num_items_in_batch: torch.Tensor | int | None = None,
        return_dict: bool | None = None,
        inputs_embeds: None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
    ) -> CausalLMOutputWithPast | tuple[Any, ...]:
        """Logits [B, T, vocab_size] of the tokens [B, T]; the loss where there are labels
        [B, T], of which -100 is none; a cache with use_cache, or where one was given.

        attention_mask: [B, T], or with the columns before; 0 is padding, at either end of a
        row. logits_to_keep: of the last columns alone; 0: all. num_items_in_batch: by what
        the sum of losses is divided; None: the labels. The last three are there because peft
        gives them, and must be none. Raises TypeError and ValueError.
        """
        refused = {
            "inputs_embeds": inputs_embeds is not None,
            "output_attentions": output_attentions,
            "output_hidden_states": output_hidden_states,
        }
        for argument in (name for name, given in refused.items() if given):
            raise value_error("TarnForCausalLM", argument, "none", "one")
        if past_key_values is not None and not isinstance(past_key_values, TarnCache):
            raise type_error(
                "TarnForCausalLM",
                "past_key_values",
                "what a call returned",
                type(past_key_values).__name__,
            )
        want_axes("TarnForCausalLM", "input_ids", input_ids, "BT")
        rows = _Rows(input_ids, attention_mask)
        keep = 0 if labels is not None else logits_to_keep
        if use_cache or past_key_values is not None:
            past = past_key_values or TarnCache(None, 0)
            logits, states = self._advance(rows, past.states, keep)
            cache = TarnCache(states, past.columns + input_ids.shape[1])
        else:
            model = self.language_model
            x = model._embed(rows.tokens)
            valid = None if rows.lengths is None else mask_of(rows.tokens, rows.lengths)
            x = model._stack(x, TriangularCausalMask(x.shape[1], device=x.device), valid)
            logits, cache = model._head(rows.as_given(x)[:, -keep:]), None
        loss = None
        if labels is not None:
            loss = self.loss_function(
                logits=logits,
                labels=labels,
                vocab_size=self.config.vocab_size,
                num_items_in_batch=num_items_in_batch,
            )
        out = CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=cast(Any, cache))
        return out.to_tuple() if return_dict is False else out

    def _advance(self, rows: _Rows, states: Any, keep: int) -> tuple[torch.Tensor, Any]:
        """Logits of the last `keep` columns (0: all) and the new states."""
        model = self.language_model
        if states is not None and rows.lengths is None and rows.tokens.shape[1] == 1:
            logits, states = model.step(rows.tokens[:, 0], states)
            return logits[:, None], states
        x = model._embed(rows.tokens, first_places(states))
        x, states = model._stack.prefill(x, rows.lengths, states)
        return model._head(rows.as_given(x)[:, -keep:]), states

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: AnyPath,
        *,
        config: TarnConfig | None = None,
        dtype: torch.dtype | str | None = None,
        device_map: Any = None,
        **options: Any,
    ) -> TarnForCausalLM:
        """The model of a directory, tarn's own or a published one, or of a GGUF file; its
        layers are then tarn's. config: what AutoModelForCausalLM has read, for its settings. dtype: of
        the weights; None, "auto": float32. device_map: a device, or {"": device}; None,
        "auto": the CPU. Other options of transformers' method must be those that change
        nothing: there is no download, no remote code and no quantisation. Raises ValueError
        and OSError."""
        dtype = options.pop("torch_dtype", None) if dtype is None else dtype
        _want_no_effect("from_pretrained", options)
        if isinstance(device_map, dict) and device_map.keys() == {""}:
            device_map = device_map[""]
        if isinstance(device_map, dict):
            wanted = "a device, or {'': device}"
            raise value_error("from_pretrained", "device_map", wanted, device_map)
        folder = pathlib.Path(os.fsdecode(pretrained_model_name_or_path))
        if not folder.exists():
            raise FileNotFoundError(
                f"{shown(folder)}: want a model directory or GGUF file, got none"
            )
        model = load_model(folder)
        if not isinstance(model, LanguageModel):
            raise ValueError(
                f"{shown(folder)}: want a language model of arch 'decoder', got "
                f"{type(model).__name__}"
            )
        found = cls(TarnConfig(model.config) if config is None else config, model)
        found._companions = tokenizer_files(folder)
        if _SETTINGS in found._companions:
            settings = json.loads(found._companions[_SETTINGS])
            found.generation_config = GenerationConfig.from_dict(settings)
        found.name_or_path = os.fsdecode(pretrained_model_name_or_path)
        if dtype not in (None, "auto"):
            torch.nn.Module.to(found, getattr(torch, dtype) if isinstance(dtype, str) else dtype)
        if device_map not in (None, "auto"):
            torch.nn.Module.to(found, device_map)
        return found.eval()

    def save_pretrained(
        self,
        save_directory: AnyPath,
        is_main_process: bool = True,
        state_dict: dict[str, torch.Tensor] | None = None,
        *,
        tokenizer: AnyPath | None = None,
        **options: Any,
    ) -> None:
        """Writes tarn's own directory, weights as float32, with the tokenizer's files of the
        directory that the model came from. state_dict: the weights; None: the model's.
        tokenizer: as in `tarn.save_model`. Raises ValueError and OSError."""
        _want_no_effect("save_pretrained", options)
        if not is_main_process:
            return
        folder = pathlib.Path(os.fsdecode(save_directory))
        weights = self.state_dict() if state_dict is None else state_dict
        config = self.language_model.config
        require_weights("save_pretrained", config, weights)
        files = self._companions
        if tokenizer is not None:
            files = tokenizer_files(pathlib.Path(os.fsdecode(tokenizer)))
        elif not files and config["tokenizer"] == "byte":
            files = {"tokenizer.json": BYTE_TOKENIZER.encode()}
        folder.mkdir(parents=True, exist_ok=True)
        write_weights(config, weights, folder)
        for name, data in files.items():
            write_bytes(data, folder / name)
        self.generation_config.save_pretrained(folder)
        # By this key transformers' Auto classes find this one; tarn skips it.
        text = config_text(config).replace("{", '{\n  "model_type": "tarn",', 1)
        write_bytes(text.encode(), folder / "config.json")


class _Rows:
    """Tokens [B, T] with those of each row at its beginning. lengths: of the rows, [B];
    None: all are whole."""

    def __init__(self, tokens: torch.Tensor, mask: torch.Tensor | None) -> None:
        self.tokens, self.lengths, self._first = tokens, None, None
        if mask is None:
            return
        batch, seq_len = tokens.shape
        if mask.dim() != 2 or mask.shape[0] != batch or mask.shape[1] < seq_len:
            wanted = f"[{batch}, {seq_len}], or with the columns before"
            raise value_error("TarnForCausalLM", "attention_mask", wanted, list(mask.shape))
        valid = mask[:, mask.shape[1] - seq_len :].bool()
        if bool(valid.all()):
            return
        self._columns = torch.arange(seq_len, device=tokens.device)
        lengths = valid.sum(1)
        first = valid.to(torch.int64).argmax(1)[:, None]
        end = first + lengths[:, None]
        if not torch.equal(valid, (self._columns >= first) & (self._columns < end)):
            wanted = "rows of ones that are padded with zeros at their ends"
            raise value_error("TarnForCausalLM", "attention_mask", wanted, "zeros between ones")
        self.lengths = lengths
        if bool(first.any()):
            self._first = first
            self.tokens = tokens.gather(1, (self._columns + first) % seq_len)

    def as_given(self, x: torch.Tensor) -> torch.Tensor:
        """Rows [B, T, D] at the places of the tokens that were given."""
        if self._first is None:
            return x
        places = (self._columns - self._first) % x.shape[1]
        return x.gather(1, places[..., None].expand(-1, -1, x.shape[2]))


AutoConfig.register(TarnConfig.model_type, TarnConfig, exist_ok=True)
AutoModelForCausalLM.register(TarnConfig, TarnForCausalLM, exist_ok=True)
