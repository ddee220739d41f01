"""The models before transformers, under the same interface."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tarn._feed_forward_parts import gelu_tanh
from tarn.masking import BaseMask
from tarn.models._config import finish_config
from tarn.models._parts import (
    Predictor,
    check_arch,
    logits_of,
    mask_of,
    mean_over_valid,
    outputs_of,
    valid_frames,
)
from tarn.models._tokens import rows_of, want_tokens

_ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, "gelu-tanh": gelu_tanh}


class _EarlierModel(torch.nn.Module):
    """Embedding, a body [B, T, D] -> [B, T, D], head."""

    def __init__(
        self, config: Mapping[str, Any] | None, keys: dict[str, Any], archs: tuple[str, ...]
    ) -> None:
        super().__init__()
        self.config: dict[str, Any] = finish_config({"arch": archs[0], **(config or {})}, **keys)
        check_arch(type(self), self.config, archs)
        self.classify: bool = self.config["task"] == "classify"
        self.frames: bool = self.config["task"] == "ctc"
        self.labels: list[str] | None = None
        if self.frames:  # the first layer reads them itself
            return
        self.value_embedding: torch.nn.Embedding = torch.nn.Embedding(
            self.config["vocab_size"], self.config["d_model"]
        )
        if self.config["tied_head"]:
            torch.nn.init.normal_(self.value_embedding.weight, std=0.02)

    def _add_head(self) -> None:
        self.predictor: Predictor = Predictor(
            outputs_of(self.config), self.config["d_model"], self.config["tied_head"]
        )

    def _body(self, x: torch.Tensor, mask: BaseMask) -> torch.Tensor:
        raise NotImplementedError(f"{type(self).__name__}: _body is not defined")

    def forward(self, tokens: torch.Tensor, lengths: torch.Tensor | None = None) -> torch.Tensor:
        """tokens [B, T] int64 -> logits [B, T, vocab_size], or [B, n_classes] of
        a classifier; frames [B, T, input_dim] -> [B, T, n_classes] of task "ctc".
        Entries past a row's length have no influence."""
        if self.frames:
            x, mask = valid_frames(self, tokens, lengths)
            return self.predictor(self._body(x, mask))
        name, reader = type(self).__name__, self.value_embedding
        want_tokens(name, "tokens", tokens, "BT", reader)
        x = rows_of(name, "tokens", tokens, reader)
        mask = mask_of(tokens, lengths)
        x = self._body(x, mask)
        if self.classify:
            return self.predictor(mean_over_valid(x, mask))
        return logits_of(self.predictor, x, self.value_embedding)


def _autocast(x: torch.Tensor) -> AbstractContextManager[Any]:
    """Under autocast torch hands 16-bit numbers to oneDNN's LSTM on every CPU. That trains in
    bfloat16 on CPUs with AVX-512 and in float16 on none. Elsewhere recurrent layers stay in
    float32."""
    if x.device.type != "cpu" or not torch.is_autocast_enabled("cpu"):
        return nullcontext()
    bfloat16 = torch.get_autocast_dtype("cpu") == torch.bfloat16
    if bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return nullcontext()
    return torch.autocast("cpu", enabled=False)


class RecurrentModel(_EarlierModel):
    """A vanilla RNN (tanh) or an LSTM, bidirectional where it classifies or
    labels frames (task "ctc") and the configuration says so. torch.export takes it
    without lengths, for any batch and the one length of the example: torch unrolls it."""

    def __init__(self, config: Mapping[str, Any] | None = None, **keys: Any) -> None:
        super().__init__(config, keys, ("lstm", "rnn"))
        cls = torch.nn.LSTM if self.config["arch"] == "lstm" else torch.nn.RNN
        both = self.config["bidirectional"]
        self.rnn: torch.nn.LSTM | torch.nn.RNN = cls(
            self.config["input_dim"] if self.frames else self.config["d_model"],
            self.config["d_model"] // (2 if both else 1),
            self.config["n_layers"],
            batch_first=True,
            dropout=self.config["dropout"] if self.config["n_layers"] > 1 else 0.0,
            bidirectional=both,
        )
        self._add_head()

    def _body(self, x: torch.Tensor, mask: BaseMask) -> torch.Tensor:
        with _autocast(x):
            return self._hidden(x, mask)

    def _hidden(self, x: torch.Tensor, mask: BaseMask) -> torch.Tensor:
        seq_len = x.shape[1]
        if x.shape[0] == 0 or seq_len == 0:
            return x.new_zeros(*x.shape[:2], self.config["d_model"])
        if torch.compiler.is_compiling() and mask._all_ones:  # which does not follow packing
            return self.rnn(x)[0]
        lengths = mask.lengths.cpu()
        packed = pack_padded_sequence(
            x, lengths.clamp(min=1), batch_first=True, enforce_sorted=False
        )
        out, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=seq_len)
        return out


class _ConvolutionLayer(torch.nn.Module):
    """y = norm(x + drop(act(conv(x))))."""

    def __init__(self, config: dict[str, Any], causal: bool) -> None:
        super().__init__()
        width, size = config["d_model"], config["kernel_size"]
        self.conv = torch.nn.Conv1d(width, width, size)
        self.norm = torch.nn.LayerNorm(width, eps=config["norm_eps"])
        self.dropout = torch.nn.Dropout(config["dropout"])
        self.activation = _ACTIVATIONS[config["activation"]]
        left = size - 1 if causal else (size - 1) // 2
        self.padding = (left, size - 1 - left)

    def forward(self, x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        # Padding tokens are zeros for every layer, as the border is.
        rows = torch.where(keep, x, 0.0).transpose(1, 2)
        mixed = self.conv(F.pad(rows, self.padding)).transpose(1, 2)
        return self.norm(x + self.dropout(self.activation(mixed)))


class CnnModel(_EarlierModel):
    """A stack of convolutions with residuals and norms: causal as a language
    model, centred as a classifier."""

    def __init__(self, config: Mapping[str, Any] | None = None, **keys: Any) -> None:
        super().__init__(config, keys, ("cnn",))
        causal = not self.classify
        self.layers: torch.nn.ModuleList = torch.nn.ModuleList(
            _ConvolutionLayer(self.config, causal) for _ in range(self.config["n_layers"])
        )
        self._add_head()

    def _body(self, x: torch.Tensor, mask: BaseMask) -> torch.Tensor:
        if x.shape[1] == 0:
            return x
        for layer in self.layers:
            x = layer(x, mask.bool_matrix[..., None])
        return x
