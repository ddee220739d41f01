"""What the models share: checks, masks and means, embeddings with positions, the
head. Their stacks are in `_stack.py`."""

from __future__ import annotations

from typing import Any

import torch

from tarn._fused import has_no_hooks, normed
from tarn._norms import make_norm
from tarn.masking import LengthMask
from tarn.models._tokens import (
    rows_of,
    want_axes,
    want_positions,
    want_tokens,
    want_values,
)

Config = dict[str, Any]
# The children of a module by their names.
Modules = dict[str, "torch.nn.Module | None"]

# A position table with entries as large as the tokens', and a head that reads such an
# embedding, learn later than small ones; tarn train starts from the same scale.
_SMALL = 0.02


def check_arch(cls: type, config: Config, archs: tuple[str, ...]) -> None:
    if config["arch"] not in archs:
        wanted = " or ".join(repr(arch) for arch in archs)
        raise ValueError(f"{cls.__name__}: arch: want {wanted}, got {config['arch']!r}")


def check_task(cls: type, config: Config, task: str) -> None:
    if config["task"] != task:
        raise ValueError(f"{cls.__name__}: task: want {task!r}, got {config['task']!r}")


def outputs_of(config: Config) -> int:
    """Rows of the head."""
    if config["task"] == "image":
        return 3 * config["n_mixtures"]
    return config["n_classes"] if config["task"] in ("classify", "ctc") else config["vocab_size"]


def valid_frames(
    model: Any, frames: torch.Tensor, lengths: torch.Tensor | None
) -> tuple[torch.Tensor, LengthMask]:
    """frames [B, T, input_dim] with zeros past the lengths [B] (None: T), so that
    padding, NaN included, affects neither results nor gradients."""
    name, width = type(model).__name__, model.config["input_dim"]
    want_axes(name, "frames", frames, ["B", "T", str(width)])
    if frames.shape[2] != width:
        raise ValueError(f"{name}: frames: want [B, T, {width}], got {list(frames.shape)}")
    weight = next(model.parameters(), frames)
    if frames.dtype != weight.dtype and not torch.is_autocast_enabled(frames.device.type):
        raise TypeError(f"{name}: frames: want {weight.dtype}, got {frames.dtype}")
    mask = mask_of(frames[..., 0], lengths)
    return torch.where(mask.bool_matrix[..., None], frames, 0.0), mask


def mask_of(tokens: torch.Tensor, lengths: torch.Tensor | None) -> LengthMask:
    """The mask of rows [B, T, ...] by their lengths [B]; None: all T."""
    batch, seq_len = tokens.shape[:2]
    if lengths is None:
        return LengthMask.full(batch, seq_len, device=tokens.device)
    if isinstance(lengths, torch.Tensor) and lengths.shape != (batch,):
        raise ValueError(f"lengths: want [{batch}], got {list(lengths.shape)}")
    return LengthMask(lengths, max_len=seq_len, device=tokens.device)


def mean_over_valid(x: torch.Tensor, mask: LengthMask) -> torch.Tensor:
    """[B, T, D] -> [B, D]; 0 for an empty row."""
    kept = torch.where(mask.bool_matrix[..., None], x, 0.0)
    return kept.sum(1) / mask.lengths.to(x.device).clamp(min=1)[:, None]


def first_places(state) -> torch.Tensor | int:
    """Tokens that each row of a model's state has consumed, [B]; 0 before the
    first."""
    if state is None:
        return 0
    part = state
    for _ in range(2):  # a layer of the stack; of a decoder layer: self and cross
        if isinstance(part, (list, tuple)) and part:
            part = part[0]
    if part is None:
        return 0
    steps = getattr(part, "steps", None)
    if not isinstance(steps, torch.Tensor):
        wanted = "what prefill, step or initial_state returned"
        raise TypeError(f"state: want {wanted}, got {type(state).__name__}")
    return steps


def make_input_norm(config: Config) -> torch.nn.Module | None:
    """The norm of the embedded rows, where there is one."""
    return norm_of(config) if config["input_norm"] else None


def norm_of(config: Config) -> torch.nn.Module:
    """A norm of a model's rows."""
    names = ("norm_kind", "d_model", "norm_eps", "norm_offset")
    return make_norm(*(config[name] for name in names))


def make_embedding(config: Config) -> tuple[torch.nn.Module, torch.nn.Module | None]:
    """What reads the tokens (or the frames of task ctc), and the table of positions
    where they are learned."""
    width = config["d_model"]
    inner = width // 2 if config["position_combine"] == "concat" else width
    tokens: torch.nn.Embedding | torch.nn.Linear
    if config["task"] == "ctc":
        tokens = torch.nn.Linear(config["input_dim"], inner)
    else:
        tokens = torch.nn.Embedding(config["vocab_size"], inner)
    if config["tied_head"]:
        torch.nn.init.normal_(tokens.weight, std=_SMALL)
    table: torch.nn.Embedding | None = None
    if config["positions"] == "learned":
        table = torch.nn.Embedding(config["max_positions"], width)
        torch.nn.init.normal_(table.weight, std=_SMALL)
    return tokens, table


class Embedding:
    """Tokens, or frames of numbers (task ctc), and their positions -> [B, T, D], by
    the modules that a model has under these names at the time of the call."""

    _one_call = True  # a step may join it with the layers

    def __init__(
        self, owner: str, config: Config, modules: Modules, tokens: str, table: str, norm: str
    ) -> None:
        """owner: the name of the model's class, for errors. tokens, table, norm: names of
        modules, of which the last two may be absent."""
        width = config["d_model"]
        self.concat = config["position_combine"] == "concat"
        self.positions = config["positions"]
        self.sinusoidal_width = width - width // 2 if self.concat else width
        self.factor: float = config["embedding_factor"] if config["task"] != "ctc" else 1.0
        self.owner = owner
        self.modules = modules
        self.names = tokens, table, norm

    @property
    def tokens(self) -> Any:
        module = self.modules.get(self.names[0])
        if module is None:
            raise AttributeError(f"{self.names[0]}: want a module, got none")
        return module

    @property
    def table(self) -> Any:
        return self.modules.get(self.names[1])

    @property
    def norm(self) -> Any:
        return self.modules.get(self.names[2])

    def __call__(
        self,
        tokens: torch.Tensor,
        first: torch.Tensor | int = 0,
        argument: str = "tokens",
    ) -> torch.Tensor:
        """tokens [B, T] int64 (or frames [B, T, input_dim]), first: place of
        tokens[:, 0], one for all or [B] on the CPU -> [B, T, D]. argument: for errors,
        ValueError for a place past a table of learned positions among them."""
        rows, norm = self._placed(tokens, first, argument), self.norm
        return rows if norm is None else normed(norm, rows)

    def _placed(
        self, tokens: torch.Tensor, first: torch.Tensor | int, argument: str
    ) -> torch.Tensor:
        """The rows before the norm."""
        reader, learned = self.tokens, self.table
        want_tokens(self.owner, argument, tokens, "BT", reader)
        _want_sequences(first, tokens)
        seq_len = tokens.shape[1]
        if learned is not None:
            want_positions(self.owner, argument, first, seq_len, learned.num_embeddings)
        x = rows_of(self.owner, argument, tokens, reader)
        if self.factor != 1.0:
            x = x * self.factor
        if learned is None and self.positions != "sinusoidal":
            return x
        if isinstance(first, torch.Tensor):
            places = first.to(tokens.device)[:, None]
            if seq_len != 1:  # a step counts nothing
                places = places + torch.arange(seq_len, device=tokens.device)
        else:
            places = torch.arange(first, first + seq_len, device=tokens.device)
        if learned is not None:
            return x + learned(places)
        table = torch.ops.tarn.sinusoidal_rows(places, self.sinusoidal_width).to(x)
        if self.concat:
            return torch.cat([x, table.expand(*x.shape[:2], -1)], dim=-1)
        return x + table

    def row(self, tokens: torch.Tensor, first: torch.Tensor | int = 0) -> torch.Tensor:
        """One token of each sequence, [B] -> [B, D], as a call. Without gradients
        and hooks the rows are read directly: module calls would slow a step."""
        tokens_module, table = self.tokens, self.table
        want_tokens(self.owner, "tokens", tokens, "B", tokens_module)
        _want_sequences(first, tokens)
        plain = (
            not torch.is_grad_enabled()
            and not torch.compiler.is_compiling()
            and type(tokens_module) is torch.nn.Embedding
            and tokens_module.max_norm is None
            and has_no_hooks(tokens_module)
            and table is None
            and self.norm is None
            and not self.concat
            and self.factor == 1.0
        )
        if not plain:
            return self(tokens[:, None], first)[:, 0]
        try:
            x = torch.embedding(tokens_module.weight, tokens)
        except IndexError:
            want_values(self.owner, "tokens", tokens, tokens_module)
            raise
        if self.positions != "sinusoidal":
            return x
        if not isinstance(first, torch.Tensor):
            first = torch.full((1,), first, device="cpu")
        if first.device != x.device:
            first = first.to(x.device)
        rows = torch.ops.tarn.sinusoidal_rows.default(first, self.sinusoidal_width)
        return x + (rows if rows.dtype == x.dtype else rows.to(x.dtype))


def _want_sequences(first: torch.Tensor | int, tokens: torch.Tensor) -> None:
    if isinstance(first, torch.Tensor) and first.shape[0] not in (1, tokens.shape[0]):
        raise ValueError(
            f"state: want {tokens.shape[0]} sequences, as the input has, got {first.shape[0]}"
        )


def logits_of(predictor: Any, x: torch.Tensor, embedding: Any) -> torch.Tensor:
    """predictor(x); one without its own weight also gets that of the embedding."""
    if getattr(predictor, "weight", None) is not None:
        return predictor(x)
    return predictor(x, getattr(embedding, "weight", None))


class Predictor(torch.nn.Module):
    """The affine map to logits, times a factor and under a soft cap. A tied one owns at most a bias and reads
    the token embedding."""

    weight: torch.nn.Parameter | None
    bias: torch.nn.Parameter | None
    _one_call = True  # a step may join it with the layers

    def __init__(
        self,
        outputs: int,
        d_model: int,
        tied: bool,
        factor: float = 1.0,
        bias: bool = True,
        softcap: float = 0.0,
    ) -> None:
        super().__init__()
        self.factor = factor
        self.softcap = softcap
        bound = d_model**-0.5
        if tied:
            self.register_parameter("weight", None)
        else:
            self.weight = torch.nn.Parameter(torch.empty(outputs, d_model).uniform_(-bound, bound))
        self.register_parameter("bias", None)
        if bias:
            self.bias = torch.nn.Parameter(torch.empty(outputs).uniform_(-bound, bound))

    def forward(self, x: torch.Tensor, embedding: torch.Tensor | None = None) -> torch.Tensor:
        weight = self.weight if self.weight is not None else embedding
        if weight is None:
            raise ValueError(
                "predictor: want the embedding's weight for a tied head, got a module without one"
            )
        logits = torch.nn.functional.linear(x, weight, self.bias)
        if self.factor != 1.0:
            logits = logits * self.factor
        if self.softcap != 0.0:
            logits = torch.tanh(logits / self.softcap) * self.softcap
        return logits
