"""Masks: which keys a query may read.

True means keep in every mask, the opposite of PyTorch's padding masks, which
`key_mask_from_pytorch` and `attention_mask_from_pytorch` negate. Masks are
values: nothing changes one, and matrices are made on first use. The names are
those of fast-transformers 0.4.
"""

from __future__ import annotations

import torch

__all__ = [
    "BaseMask",
    "FullMask",
    "LengthMask",
    "MaskError",
    "TriangularCausalMask",
    "attention_mask_from_pytorch",
    "key_mask_from_pytorch",
]


class MaskError(ValueError, RuntimeError):
    """A mask that does not fit the call, or that the attention kind cannot
    apply. Also a RuntimeError, which fast-transformers raises there."""


class BaseMask:
    """The interface of every mask. A derived class defines `bool_matrix`."""

    _all_ones: bool | None = None
    _lower_triangular: bool | None = None
    _lengths: torch.Tensor | None = None

    @property
    def bool_matrix(self) -> torch.Tensor:
        """[rows, columns] bool, True = keep; may have leading axes."""
        raise NotImplementedError(f"{type(self).__name__}: bool_matrix is not defined")

    @property
    def shape(self) -> torch.Size:
        """Shape of `bool_matrix`."""
        return self.bool_matrix.shape

    @property
    def float_matrix(self) -> torch.Tensor:
        """1 where kept, else 0, float32."""
        return self.bool_matrix.float()

    @property
    def additive_matrix(self) -> torch.Tensor:
        """0 where kept, else -inf, float32: what is added before a softmax."""
        return self._additive(float("-inf"))

    @property
    def additive_matrix_finite(self) -> torch.Tensor:
        """The same as additive_matrix, with -1e24 for -inf."""
        return self._additive(-1e24)

    def _additive(self, masked: float) -> torch.Tensor:
        kept = self.bool_matrix
        return torch.zeros_like(kept, dtype=torch.float32).masked_fill_(~kept, masked)

    @property
    def lengths(self) -> torch.Tensor:
        """Kept entries of each row, int64, without the last axis of the matrix.
        Raises ValueError unless every row is ones followed by zeros."""
        if self._lengths is None:
            kept = self.bool_matrix
            lengths = kept.sum(dim=-1)
            prefix = torch.arange(kept.shape[-1], device=kept.device) < lengths.unsqueeze(-1)
            if not torch.equal(prefix, kept):
                raise ValueError(
                    "lengths: want a mask whose rows are ones followed by zeros, got another mask"
                )
            self._lengths = lengths
        return self._lengths

    @property
    def all_ones(self) -> bool:
        """Whether everything is kept. Reads the matrix once."""
        if self._all_ones is None:
            self._all_ones = bool(self.bool_matrix.all())
        return self._all_ones

    @property
    def lower_triangular(self) -> bool:
        """Whether entry (i, j) is kept exactly for j <= i. Reads the matrix once."""
        if self._lower_triangular is None:
            self._lower_triangular = self.causal_offset == 0
        return self._lower_triangular

    @property
    def causal_offset(self) -> int | None:
        """The offset with which the mask keeps exactly j <= i + offset; None
        where it does not. A mask that keeps everything has no definite offset and gives
        None, unless it is 1 x 1. Reads the matrix."""
        kept = self.bool_matrix
        if kept.dim() != 2 or 0 in kept.shape:
            return None
        rows, columns = kept.shape
        offset = int(kept[0].sum()) - 1
        if offset < 0:  # the first row is empty: the second-last diagonal decides
            offset = int(kept[-1].sum()) - rows
        if offset >= columns - 1 and columns > 1:
            return None
        wanted = torch.ones_like(kept).tril(offset)
        return offset if torch.equal(wanted, kept) else None

    def __repr__(self) -> str:
        sizes = ", ".join(str(size) for size in self.shape)
        return f"{type(self).__name__}[{sizes}]"


class FullMask(BaseMask):
    """Any mask: a bool tensor, or all ones of a given size.

    Args:
        mask: bool tensor, copied; or the number of rows.
        N, M: rows and columns of a mask of ones; M defaults to N. With the
            number of rows as first argument, the second is the columns.
        device: where a mask of ones is made.

    As an attention mask it has the shape [L, S], [N, L, S] or [N, H, L, S]; as a
    key mask [N, S]. A mask of ones makes its matrix on first use only.
    Raises ValueError.
    """

    def __init__(
        self,
        mask: torch.Tensor | int | None = None,
        N: int | None = None,
        M: int | None = None,
        device: torch.device | str = "cpu",
    ):
        self._mask: torch.Tensor | None = None
        if isinstance(mask, torch.Tensor):
            if mask.dtype != torch.bool:
                raise ValueError(f"FullMask: mask: want torch.bool, got {mask.dtype}")
            self._mask = mask.detach().clone()
            self._shape = self._mask.shape
            return
        if mask is not None:
            N, M = mask, (N if M is None else M)
        if N is None:
            raise ValueError("FullMask: mask: want a bool tensor or a size, got None")
        self._shape = torch.Size((N, N if M is None else M))
        self._device = device
        self._all_ones = True

    @property
    def bool_matrix(self) -> torch.Tensor:
        if self._mask is None:
            self._mask = torch.ones(self._shape, dtype=torch.bool, device=self._device)
        return self._mask

    @property
    def shape(self) -> torch.Size:
        return self._shape


class LengthMask(BaseMask):
    """Row n keeps its first lengths[n] entries.

    Args:
        lengths: [N] integers from 0 to max_len, copied. They are checked, except
            in a function that is being compiled, which cannot read them.
        max_len: columns; None: the largest length.
        device: device of the copy; None: that of lengths.

    As a key mask it must have as many columns as there are keys, so max_len must
    be given where the batch is padded further. Raises TypeError, ValueError.
    """

    def __init__(
        self,
        lengths: torch.Tensor,
        max_len: int | None = None,
        device: torch.device | str | None = None,
    ):
        if not isinstance(lengths, torch.Tensor) or lengths.is_floating_point():
            given = getattr(lengths, "dtype", type(lengths).__name__)
            raise TypeError(f"LengthMask: lengths: want a tensor of integers, got {given}")
        if lengths.dim() != 1:
            raise ValueError(f"LengthMask: lengths: want 1 axis, got {lengths.dim()}")
        self._lengths = lengths.detach().to(device=device or lengths.device, copy=True)
        if max_len is None:
            max_len = int(lengths.max()) if lengths.numel() else 0
        self._max_len = max_len
        if lengths.numel() and not (lengths.is_meta or torch.compiler.is_compiling()):
            least, most = (int(bound) for bound in torch.aminmax(lengths))
            if least < 0 or most > max_len:
                raise ValueError(
                    f"LengthMask: lengths: want from 0 to max_len {max_len}, "
                    f"got {least if least < 0 else most}"
                )

    @classmethod
    def full(cls, batch: int, max_len: int, device: torch.device | str = "cpu") -> LengthMask:
        """A mask that is known to keep everything, without reading a tensor."""
        mask = cls.__new__(cls)
        mask._lengths = torch.full((batch,), max_len, dtype=torch.int64, device=device)
        mask._max_len = max_len
        mask._all_ones = True
        return mask

    @property
    def bool_matrix(self) -> torch.Tensor:
        lengths = self.lengths
        return torch.arange(self._max_len, device=lengths.device) < lengths.unsqueeze(1)

    @property
    def shape(self) -> torch.Size:
        return torch.Size((self.lengths.shape[0], self._max_len))

    @property
    def all_ones(self) -> bool:
        if self._all_ones is None:
            self._all_ones = bool((self.lengths == self._max_len).all())
        return self._all_ones


class TriangularCausalMask(LengthMask):
    """Query i reads the keys j <= i + offset.

    Args:
        N: number of queries.
        device: where matrices are made.
        keys: number of keys; None: as many as queries in `bool_matrix`, any
            number in a call of attention (the first keys belong to the first
            queries, for any sizes).
        offset: tokens by which queries come later than keys; keys - N aligns
            the last query with the last key.
    """

    def __init__(
        self,
        N: int,
        device: torch.device | str = "cpu",
        *,
        keys: int | None = None,
        offset: int = 0,
    ):
        columns = N if keys is None else keys
        lengths = torch.arange(1 + offset, N + 1 + offset, device=device)
        # Within the bounds by construction, so not checked as LengthMask would.
        self._lengths = lengths.clamp_(0, columns)
        self._max_len = columns
        self._offset = offset
        self._any_keys = keys is None
        self._all_ones = N == 0 or offset + 1 >= columns
        self._lower_triangular = offset == 0

    @property
    def causal_offset(self) -> int:
        return self._offset

    @property
    def any_keys(self) -> bool:
        """Whether the number of keys was left open."""
        return self._any_keys


def key_mask_from_pytorch(key_padding_mask: torch.Tensor) -> FullMask:
    """The key mask that negates PyTorch's `key_padding_mask` [N, S] (there True
    or -inf = leave out). Raises ValueError, TypeError."""
    return FullMask(_keep_of_pytorch("key_padding_mask", key_padding_mask))


def attention_mask_from_pytorch(attn_mask: torch.Tensor, n_heads: int = 1) -> FullMask:
    """The attention mask that negates PyTorch's `attn_mask` (there True or -inf
    = leave out).

    attn_mask: [L, S], or [N * n_heads, L, S], which becomes [N, n_heads, L, S].
    Raises ValueError (a float mask with entries besides 0 and -inf is a bias,
    not a mask), TypeError.
    """
    keep = _keep_of_pytorch("attn_mask", attn_mask)
    if keep.dim() == 3:
        if n_heads < 1 or keep.shape[0] % n_heads:
            raise ValueError(
                f"attn_mask: want a first axis that is a multiple of {n_heads} heads, "
                f"got {keep.shape[0]}"
            )
        keep = keep.unflatten(0, (keep.shape[0] // n_heads, n_heads))
    return FullMask(keep)


def _keep_of_pytorch(argument: str, mask: torch.Tensor) -> torch.Tensor:
    if not isinstance(mask, torch.Tensor):
        raise TypeError(f"{argument}: want a tensor, got {type(mask).__name__}")
    if mask.dtype == torch.bool:
        return ~mask
    if not mask.is_floating_point():
        raise TypeError(f"{argument}: want torch.bool or a float type, got {mask.dtype}")
    keep = mask == 0
    if not torch.equal(keep, ~torch.isneginf(mask)):
        raise ValueError(f"{argument}: want entries 0 and -inf, got others: a bias, not a mask")
    return keep
