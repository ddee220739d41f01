"""Linear attention as an RNN (Katharopoulos et al. 2020, eq. (18)-(20)), and over
a fixed memory."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import torch

from tarn import ops
from tarn.attention._steps.base import CausalSteps
from tarn.attention._steps.memory import MemoryReader, keep_of
from tarn.recurrent._inputs import Lengths, State, begin, lengths_of, want_part
from tarn.recurrent._state import AttentionState


def feature_map_version(feature_map: torch.nn.Module) -> str:
    """Name of the map and a checksum of its random matrix: a state written
    under one matrix means nothing under another. Computed once per drawing."""
    name = type(feature_map).__name__
    omega = getattr(feature_map, "omega", None)
    if omega is None:
        return name
    drawn = (omega.data_ptr(), omega._version)
    cached = getattr(feature_map, "_tarn_version", None)
    if cached is None or cached[0] != drawn:
        data = omega.detach().float().cpu().contiguous().numpy().tobytes()
        cached = (drawn, f"{name}:{zlib.crc32(data):08x}")
        object.__setattr__(feature_map, "_tarn_version", cached)
    return cached[1]


class LinearSums:
    """Linear attention whose sums are a state; mixed into a LinearAttentionBase,
    which has the map and the denominator."""

    kind: str
    feature_map: Any
    arguments: Callable[[], dict[str, Any]]

    def facts(self, keys: torch.Tensor, values: torch.Tensor) -> dict[str, Any]:
        """What a state must agree on with the module that reads it."""
        heads, d_key = keys.shape[-2:]
        return self.facts_of(self.arguments(), heads, d_key, values.shape[-1])

    def facts_of(
        self, arguments: dict[str, Any], heads: int, d_key: int, d_value: int
    ) -> dict[str, Any]:
        """The same facts from the sizes."""
        denominator = arguments["denominator"]
        return {
            "feature_map": feature_map_version(self.feature_map),
            "denominator": denominator,
            "eps": arguments["eps"] if denominator == "compat" else None,
            "heads": heads,
            "d_key": d_key,
            "d_value": d_value,
        }

    def new_state(
        self, held: ops.LinearState, steps: torch.Tensor, facts: dict[str, Any]
    ) -> AttentionState:
        """A state of these sums."""
        tensors = {"S": held.S, "z": held.z}
        if held.extra is not None:
            tensors["extra"] = held.extra
        return AttentionState(self.kind, tensors, steps, facts)

    def state_of_pair(
        self, S: torch.Tensor, z: torch.Tensor, facts: dict[str, Any]
    ) -> AttentionState:
        """A state made of the plain pair S [N, H, C, M], z [N, H, C]. The signed
        denominator also keeps the sum of |phi(k)|; the pair only implies that it is
        at least |z|, which is taken. Raises ValueError where a running maximum would
        be needed."""
        want_part("S", S, (None, facts["heads"], None, facts["d_value"]))
        want_part("z", z, S.shape[:3])
        arguments = self.arguments()
        if arguments.get("stabilise"):
            raise ValueError(
                "state: want the state this module returned, whose third part a stabilised "
                "feature map needs, got a pair"
            )
        extra = z.norm(dim=-1) if facts["denominator"] == "signed" else None
        steps = torch.zeros(S.shape[0], dtype=torch.int64, device="cpu")
        return self.new_state(ops.LinearState(S, z, extra), steps, facts)

    @staticmethod
    def held(state: AttentionState | None) -> ops.LinearState | None:
        """The state as the operators take it."""
        if state is None:
            return None
        return ops.LinearState(state["S"], state["z"], state.tensors.get("extra"))


class LinearSteps(LinearSums, CausalSteps):
    """State, of a fixed size: S [N, H, C, M] and z [N, H, C], float32, and what
    the feature map needs (`extra`). A plain pair [S, z] is a state too."""

    kind = "linear"

    def _begin(self, state: State, batch_size: int, facts: dict[str, Any]) -> AttentionState | None:
        def adopt(S: torch.Tensor, z: torch.Tensor) -> AttentionState:
            return self.state_of_pair(S, z, facts)

        return begin(state, self.kind, batch_size, facts, ("S", "z"), adopt)

    def step(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        state: State = None,
    ) -> tuple[torch.Tensor, AttentionState]:
        """Does what CausalSteps.step does, in O(H C M) time, the same at every token."""
        batch = query.shape[0]
        if state is None:  # a new sequence: random maps may draw, and facts name the draw
            self.feature_map.new_feature_map(query.device)
        facts = self.facts(key, value)
        state = self._begin(state, batch, facts)
        out, held = ops.mapped_linear_attention_step(
            query, key, value, self.held(state), **self.arguments()
        )
        steps = torch.ones(batch, dtype=torch.int64, device="cpu")
        if state is not None:
            steps = steps + state.steps
        return out, self.new_state(held, steps, facts)

    def prefill(
        self,
        queries: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        lengths: Lengths | None = None,
        state: State = None,
    ) -> tuple[torch.Tensor, AttentionState]:
        """Does what CausalSteps.prefill does, in chunks."""
        batch, seq_len = queries.shape[:2]
        new = lengths_of(lengths, batch, seq_len)
        if state is None:
            self.feature_map.new_feature_map(queries.device)
        facts = self.facts(keys, values)
        state = self._begin(state, batch, facts)
        out, held = ops.mapped_linear_attention(
            queries,
            keys,
            values,
            causal=True,
            key_lengths=None if lengths is None else new.to(keys.device),
            initial_state=self.held(state),
            return_state=True,
            **self.arguments(),
        )
        steps = new if state is None else state.steps + new
        return out, self.new_state(held, steps, facts)


class LinearMemory(LinearSums, MemoryReader):
    """State: S [N, H, C, M] and z [N, H, C] of the whole memory; a read costs
    O(H C M) for any length of the memory. A plain pair [S, z] is a state too."""

    kind = "cross-linear"
    _names = ("S", "z")

    def build_state(
        self,
        keys: torch.Tensor,
        values: torch.Tensor,
        key_lengths: Lengths | None = None,
    ) -> AttentionState:
        """The sums over a memory; arguments as in MemoryReader."""
        self.feature_map.new_feature_map(keys.device)
        batch, seq_len = keys.shape[:2]
        no_queries = keys[:, :0]
        _, held = ops.mapped_linear_attention(
            no_queries,
            keys,
            values,
            causal=False,
            key_mask=keep_of(key_lengths, batch, seq_len, keys.device),
            return_state=True,
            **self.arguments(),
        )
        steps = lengths_of(None, batch, seq_len)
        return self.new_state(held, steps, self.facts(keys, values))

    def adopt(
        self,
        first: torch.Tensor,
        second: torch.Tensor,
        query: torch.Tensor,
        key_lengths: Lengths | None,
    ) -> AttentionState:
        """A state made of a pair [S, z]."""
        want_part("S", first, (query.shape[0], query.shape[-2], None, None))
        return self.state_of_pair(first, second, self.facts(query, first))

    def read(self, queries: torch.Tensor, state: AttentionState) -> torch.Tensor:
        """queries [N, L, H, E] -> [N, L, H, M]. O(L H C M)."""
        no_keys = queries[:, :0]
        no_values = queries.new_zeros(queries.shape[0], 0, *state["S"].shape[1::2])
        state.check(self.kind, queries.shape[0], self.facts(no_keys, no_values))
        return ops.mapped_linear_attention(
            queries,
            no_keys,
            no_values,
            causal=False,
            initial_state=self.held(state),
            **self.arguments(),
        )
