"""The state that a recurrent attention module remembers, as a value."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

import torch

from tarn._paths import AnyPath, shown

_FORMAT = "tarn-attention-state"
_VERSION = 1

# Kinds of self attention whose keys and values are [N, t, H, .] by name.
TIME_FIRST_CACHES = ("full", "exact-topk", "aft-full")

# Facts of a state that a module compares with its own before it reads it.
Facts = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class AttentionState:
    """The past of N sequences in one attention module.

    It is a value: no module changes a state it is given, so a kept state is a
    point to return to.

    It unpacks, and is indexed by place, as the pair that fast-transformers uses:
    ``S, z = state``, or ``keys, values = state``, which in self attention
    are [N, H, t, .] (a view; by name they are tarn's [N, t, H, .]). Such a pair
    in a list is a state too, whatever was done to it in between. It does not
    record the tokens before it, so steps of a linear attention count from
    there.

    kind: the attention kind that wrote it, such as "linear" or "cross-full".
    tensors: name -> tensor, sequences on axis 0.
    steps: [N] int64 on the CPU, tokens each sequence has consumed.
    facts: numbers and words that must be the same in the module that reads
        it: the denominator, the feature map, widths.
    """

    kind: str
    tensors: dict[str, torch.Tensor]
    steps: torch.Tensor
    facts: dict[str, Any] = field(default_factory=dict)
    # The tensor a cross state was built from, where its owner still holds it.
    source: Any = None

    @classmethod
    def of(
        cls,
        kind: str,
        tensors: dict[str, torch.Tensor],
        steps: torch.Tensor,
        facts: dict[str, Any],
    ) -> AttentionState:
        """The same as AttentionState(...), but faster, since every token makes one: a
        frozen dataclass sets its members one by one past its own guard."""
        state = cls.__new__(cls)
        state.__dict__.update(kind=kind, tensors=tensors, steps=steps, facts=facts, source=None)
        return state

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "source": None}  # the source stays in this process

    def _pair(self) -> list[torch.Tensor]:
        """The tensors in the order of the pair."""
        if self.kind in TIME_FIRST_CACHES:
            return [self.tensors[name].transpose(1, 2) for name in ("keys", "values")]
        not_in_pair = ("keep", "extra", "channel_shift")  # the last of the feed-forward part
        names = [name for name in self.tensors if name not in not_in_pair]
        return [self.tensors[name] for name in names]

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(self._pair())

    def __len__(self) -> int:
        return len(self._pair())

    def __getitem__(self, key: int | str) -> torch.Tensor:
        return self.tensors[key] if isinstance(key, str) else self._pair()[key]

    def __setitem__(self, key: int | str, value: torch.Tensor) -> None:
        raise TypeError(
            "AttentionState: want it as it is, for states are values; put a list [S, z] or "
            "[keys, values] in its place, or use tarn.recurrent.reorder, fork or reset; got "
            f"an assignment to {key!r}"
        )

    @property
    def batch_size(self) -> int:
        return self.steps.shape[0]

    @property
    def nbytes(self) -> int:
        """Bytes of its tensors."""
        return sum(t.numel() * t.element_size() for t in self.tensors.values())

    def _map(self, function: Callable[[torch.Tensor], torch.Tensor]) -> AttentionState:
        tensors = {name: function(tensor) for name, tensor in self.tensors.items()}
        return replace(self, tensors=tensors, steps=function(self.steps), source=None)

    def clone(self) -> AttentionState:
        """A copy that shares no memory. O(bytes)."""
        return self._map(lambda tensor: tensor.clone())

    def __deepcopy__(self, memo: dict[int, Any]) -> AttentionState:
        return self.clone()

    def detach(self) -> AttentionState:
        """The same numbers without their history (truncated backpropagation)."""
        return self._map(lambda tensor: tensor.detach())

    def to(self, *args: Any, **kwargs: Any) -> AttentionState:
        """The state with its tensors moved as ``torch.Tensor.to`` does; steps stay."""
        tensors = {name: t.to(*args, **kwargs) for name, t in self.tensors.items()}
        return replace(self, tensors=tensors, source=None)

    def fork(self, copies: int) -> AttentionState:
        """[N] -> [N * copies] sequences, the copies of each next to each other."""
        if copies < 1:
            raise ValueError(f"AttentionState.fork: copies: want at least 1, got {copies}")
        return self._map(lambda tensor: tensor.repeat_interleave(copies, dim=0))

    def reorder(self, indices: torch.Tensor | Sequence[int]) -> AttentionState:
        """Row i of the result is row indices[i]: the step of beam search.

        indices: int64, any length; rows may be left out or come twice.
        Raises IndexError outside [0, N).
        """
        rows = torch.as_tensor(indices, dtype=torch.int64, device="cpu")
        if rows.dim() != 1:
            raise ValueError(
                f"AttentionState.reorder: indices: want one axis, got {list(rows.shape)}"
            )
        if rows.numel() and not (0 <= int(rows.min()) and int(rows.max()) < self.batch_size):
            raise IndexError(
                f"AttentionState.reorder: indices: want 0 to {self.batch_size - 1}, "
                f"got {int(rows.min())} to {int(rows.max())}"
            )
        return self._map(lambda tensor: tensor.index_select(0, rows.to(tensor.device)))

    def reset(self, rows: torch.Tensor | Sequence[int]) -> AttentionState:
        """The given sequences put back to before their first token.

        rows: bool [N], or int64 indices. Raises ValueError for a cross state,
        which has no first token.
        """
        if self.kind.startswith("cross-"):
            raise ValueError("AttentionState.reset: a cross state is built once, not reset")
        chosen = torch.as_tensor(rows, device="cpu")
        if chosen.dtype != torch.bool:
            mask = torch.zeros(self.batch_size, dtype=torch.bool, device="cpu")
            mask[chosen.to(torch.int64)] = True
            chosen = mask
        if chosen.shape != (self.batch_size,):
            raise ValueError(
                f"AttentionState.reset: rows: want [{self.batch_size}], got {list(chosen.shape)}"
            )
        initial = self.facts.get("initial", {})
        tensors = {}
        for name, tensor in self.tensors.items():
            where = chosen.to(tensor.device).view(-1, *[1] * (tensor.dim() - 1))
            tensors[name] = tensor.masked_fill(where, initial.get(name, 0.0))
        return replace(self, tensors=tensors, steps=self.steps.masked_fill(chosen, 0), source=None)

    def check(self, kind: str, batch_size: int, facts: Facts) -> None:
        """Raises ValueError unless a module of these facts may read it."""
        if self.kind != kind:
            raise ValueError(f"state: want one of kind {kind!r}, got {self.kind!r}")
        if self.batch_size != batch_size:
            raise ValueError(
                f"state: want {batch_size} sequences, as the input has, got {self.batch_size}"
            )
        for name, wanted in facts.items():
            given = self.facts.get(name)
            if given != wanted:
                raise ValueError(f"state: {name}: want {wanted!r}, got {given!r}")

    def fits(self, kind: str, batch_size: int, facts: Facts) -> bool:
        """Whether check would pass and the state holds no other facts."""
        known = self.facts is facts or self.facts == facts
        return known and self.kind == kind and self.steps.shape[0] == batch_size

    def __eq__(self, other: object) -> bool:
        """The same kind, facts, steps and bits."""
        if not isinstance(other, AttentionState):
            return NotImplemented
        return (
            self.kind == other.kind
            and self.facts == other.facts
            and torch.equal(self.steps, other.steps)
            and self.tensors.keys() == other.tensors.keys()
            and all(torch.equal(t, other.tensors[name]) for name, t in self.tensors.items())
        )

    __hash__: None = None  # type: ignore[assignment]


# The states of a model's layers, nested as the layers are.
StateTree: TypeAlias = "AttentionState | Sequence[StateTree] | None"
_Tree = TypeVar("_Tree", bound=StateTree)


def map_state(function: Callable[[AttentionState], AttentionState], state: _Tree) -> _Tree:
    """Applies `function` to every AttentionState of a nested list or tuple;
    None stays None. Returns new containers."""
    return _mapped(function, state)


def _mapped(function: Callable[[AttentionState], AttentionState], state: Any) -> Any:
    if state is None:
        return None
    if isinstance(state, AttentionState):
        return function(state)
    if isinstance(state, (list, tuple)):
        return type(state)(_mapped(function, part) for part in state)
    raise TypeError(
        f"state: want an AttentionState or nested lists of them, got {type(state).__name__}"
    )


def clone(state: _Tree) -> _Tree:
    """A copy of a model's state that shares no memory."""
    return map_state(AttentionState.clone, state)


def fork(state: _Tree, copies: int) -> _Tree:
    """Every sequence `copies` times, the copies next to each other."""
    return map_state(lambda part: part.fork(copies), state)


def reorder(state: _Tree, indices: torch.Tensor | Sequence[int]) -> _Tree:
    """Row i becomes row indices[i] in every layer (beam search)."""
    return map_state(lambda part: part.reorder(indices), state)


def reset(state: _Tree, rows: torch.Tensor | Sequence[int]) -> _Tree:
    """The given rows back to before their first token; cross states, which
    belong to the memory, stay."""
    return map_state(
        lambda part: part if part.kind.startswith("cross-") else part.reset(rows), state
    )


def nbytes(state: StateTree) -> int:
    """Bytes of all tensors of a state."""
    total = 0

    def count(part: AttentionState) -> AttentionState:
        nonlocal total
        total += part.nbytes
        return part

    map_state(count, state)
    return total


def save_state(state: StateTree, path: AnyPath) -> None:
    """Writes a state, nested lists and all, as one safetensors file that
    appears by rename. Raises OSError."""
    from tarn._files import write_tensors

    tensors: dict[str, torch.Tensor] = {}

    def describe(part: Any) -> Any:
        if part is None:
            return None
        if isinstance(part, AttentionState):
            index = len(tensors)
            names = {}
            for name, tensor in part.tensors.items():
                names[name] = f"{index}.{name}"
                tensors[names[name]] = tensor.detach()
            tensors[f"{index}.steps"] = part.steps
            return {
                "kind": part.kind,
                "tensors": names,
                "steps": f"{index}.steps",
                "facts": part.facts,
            }
        return [describe(item) for item in part]

    tree = describe(state)
    metadata = {"format": _FORMAT, "version": str(_VERSION), "tree": json.dumps(tree)}
    write_tensors(tensors, path, metadata)


def load_state(path: AnyPath) -> Any:
    """Reads what save_state wrote; lists come back as lists. Raises ValueError
    for another file, a newer version or parts that do not fit together;
    whether it fits a model is checked where it is first used."""
    from tarn._files import read_tensors

    tensors, metadata = read_tensors(path)
    if metadata.get("format") != _FORMAT:
        raise ValueError(f"{shown(path)}: want a state written by save_state, got another file")
    if metadata.get("version") != str(_VERSION):
        raise ValueError(f"{shown(path)}: version: want {_VERSION}, got {metadata.get('version')}")

    def build(part: Any) -> Any:
        if part is None:
            return None
        if isinstance(part, list):
            return [build(item) for item in part]
        steps = tensors[part["steps"]]
        held = {name: tensors[key] for name, key in part["tensors"].items()}
        for name, tensor in held.items():
            if tensor.dim() < 1 or tensor.shape[0] != steps.shape[0]:
                raise ValueError(
                    f"{shown(path)}: {name}: want {steps.shape[0]} sequences, got {list(tensor.shape)}"
                )
        return AttentionState(part["kind"], held, steps, part["facts"])

    try:
        return build(json.loads(metadata["tree"]))
    except (KeyError, TypeError, AttributeError, RecursionError, json.JSONDecodeError) as error:
        raise ValueError(
            f"{shown(path)}: want a whole description of the state, got {error!r}"
        ) from None
