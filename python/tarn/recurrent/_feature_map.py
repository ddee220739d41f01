"""What self and cross linear attention share: the feature map's version and
the facts a state records."""

from __future__ import annotations

import zlib
from typing import Any

import torch

from tarn import ops
from tarn.attention._linear import LinearAttentionBase
from tarn.recurrent._inputs import want_part
from tarn.recurrent._state import AttentionState


def feature_map_version(feature_map: torch.nn.Module) -> str:
    """Name of the map and a checksum of its random matrix: a state written
    under one matrix means nothing under another. Read once a drawing."""
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


class RecurrentLinearBase(LinearAttentionBase):
    """Linear attention whose sums are a state."""

    kind: str

    def facts(self, keys: torch.Tensor, values: torch.Tensor) -> dict[str, Any]:
        """What a state must agree on with the module that reads it."""
        arguments = self.arguments()
        denominator = arguments["denominator"]
        return {
            "feature_map": feature_map_version(self.feature_map),
            "denominator": denominator,
            "eps": arguments["eps"] if denominator == "compat" else None,
            "heads": keys.shape[-2],
            "d_key": keys.shape[-1],
            "d_value": values.shape[-1],
        }

    def new_state(
        self, held: ops.LinearState, steps: torch.Tensor, facts: dict[str, Any]
    ) -> AttentionState:
        tensors = {"S": held.S, "z": held.z}
        if held.extra is not None:
            tensors["extra"] = held.extra
        return AttentionState(self.kind, tensors, steps, facts)

    def state_of_pair(
        self, S: torch.Tensor, z: torch.Tensor, facts: dict[str, Any]
    ) -> AttentionState:
        """A state of the plain pair S [N, H, C, M], z [N, H, C]. Of what else a
        denominator of both signs keeps, the sum of |phi(k)|, the pair tells only
        that it is at least |z|, so that is taken. Raises ValueError where a
        running maximum would be needed."""
        want_part("S", S, (None, facts["heads"], None, facts["d_value"]))
        want_part("z", z, S.shape[:3])
        arguments = self.arguments()
        if arguments.get("stabilise"):
            raise ValueError(
                "state: want the state this module returned, whose third part a stabilised "
                "feature map needs, got a pair"
            )
        extra = z.norm(dim=-1) if facts["denominator"] == "signed" else None
        steps = torch.zeros(S.shape[0], dtype=torch.int64)
        return self.new_state(ops.LinearState(S, z, extra), steps, facts)

    @staticmethod
    def held(state: AttentionState | None) -> ops.LinearState | None:
        """The state as the operators take it."""
        if state is None:
            return None
        return ops.LinearState(state["S"], state["z"], state.tensors.get("extra"))
