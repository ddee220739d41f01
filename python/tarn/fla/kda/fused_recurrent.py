"""fused_recurrent_kda, and the form of it that a server calls: states in a pool."""

from typing import Any

import torch
from torch import Tensor

from tarn.fla import _call, _delta
from tarn.fla.kda.gate import gates_of
from tarn.ops import _checks as checks

__all__ = ["fused_recurrent_kda", "fused_recurrent_kda_fwd"]


def fused_recurrent_kda(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    lower_bound: float | None = None,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """:func:`tarn.fla.chunk_kda`, with a gradient here; beta may be [B, T, HV, V]."""
    op = "fused_recurrent_kda"
    state_v_first = _call.v_first(op, state_v_first, kwargs)
    _call.refuse_unknown(op, kwargs)
    gates = gates_of(op, g, use_gate_in_kernel, A_log, dt_bias, lower_bound, v, k.shape[3])
    q, k = _delta.lengths_of_1(q, k, use_qk_l2norm_in_kernel)
    betas = _delta.betas_of(op, beta, v, use_beta_sigmoid_in_kernel, allow_neg_eigval)
    return _call.recurrence(
        op,
        q,
        k,
        v,
        gates=gates,
        betas=betas,
        scale=scale,
        initial_state=initial_state,
        output_final_state=output_final_state,
        state_v_first=state_v_first,
        cu_seqlens=cu_seqlens,
        grouped=True,
    )


def fused_recurrent_kda_fwd(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    A_log: Tensor | None = None,
    dt_bias: Tensor | None = None,
    initial_state: Tensor | None = None,
    scale: float | None = None,
    output_final_state: bool = False,
    inplace_final_state: bool = True,
    state_v_first: bool = False,
    cu_seqlens: Tensor | None = None,
    ssm_state_indices: Tensor | None = None,
    num_accepted_tokens: Tensor | None = None,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    lower_bound: float | None = None,
    out: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """:func:`tarn.fla.fused_recurrent_kda` with states in place or in a pool.

    inplace_final_state: the final states are written to initial_state, which is returned.
    ssm_state_indices: initial_state is a pool [slots, HV, K, V]; sequence n begins with the
    state of slot ssm_state_indices[n, num_accepted_tokens[n] - 1], the first one without
    num_accepted_tokens, and the state after its token t goes to slot ssm_state_indices[n, t].
    [N] is enough where no sequence has more than one token. Without inplace_final_state the
    states after the tokens are returned instead, [tokens, HV, K, V] in float32, if
    output_final_state asks for them. A sequence without tokens changes nothing. out [B, T, HV, V]
    takes the outputs. States carry no gradient; the outputs do unless `out` is given."""
    op = "fused_recurrent_kda_fwd"
    state_v_first = _call.v_first(op, state_v_first, kwargs)
    _call.refuse_unknown(op, kwargs)
    if inplace_final_state and initial_state is None:
        raise checks.value_error(
            op, "initial_state", "a tensor, or inplace_final_state=False", None
        )
    if num_accepted_tokens is not None and ssm_state_indices is None:
        raise checks.value_error(op, "ssm_state_indices", "a tensor with num_accepted_tokens", None)
    if out is not None:
        checks.want_shape(op, "out", out, v.shape)
    gates = gates_of(op, g, use_gate_in_kernel, A_log, dt_bias, lower_bound, v, k.shape[3])
    q, k = _delta.lengths_of_1(q, k, use_qk_l2norm_in_kernel)
    betas = _delta.betas_of(op, beta, v, use_beta_sigmoid_in_kernel, allow_neg_eigval)
    options: dict[str, Any] = dict(scale=scale, state_v_first=state_v_first)
    if ssm_state_indices is None:
        found, final = _call.recurrence(
            op,
            q,
            k,
            v,
            gates=gates,
            betas=betas,
            initial_state=initial_state,
            grouped=True,
            output_final_state=inplace_final_state or output_final_state,
            cu_seqlens=cu_seqlens,
            **options,
        )
        if inplace_final_state:
            assert initial_state is not None and final is not None
            with torch.no_grad():
                initial_state.copy_(final)
            final = initial_state
    else:
        pool = _Pool(
            op,
            q,
            v,
            initial_state,
            state_v_first,
            cu_seqlens,
            ssm_state_indices,
            num_accepted_tokens,
        )
        found, states = pool.run(q, k, v, gates, betas, inplace_final_state, options)
        final = states if output_final_state else None
        final = initial_state if inplace_final_state else final
    if out is not None:
        with torch.no_grad():
            out.copy_(found)
        return out, final
    return found, final


class _Pool:
    """The slots that a call reads and writes: checked before any of them is written."""

    def __init__(
        self,
        op: str,
        q: Tensor,
        v: Tensor,
        states: Tensor | None,
        v_first: bool,
        cu_seqlens: Tensor | None,
        indices: Tensor,
        accepted: Tensor | None,
    ) -> None:
        self.op, self.states, sizes = op, states, (q.shape[3], v.shape[3])
        if cu_seqlens is None:
            self.starts = torch.arange(q.shape[0], device=q.device) * q.shape[1]
            self.lengths = torch.full_like(self.starts, q.shape[1])
        else:
            if q.shape[0] != 1:
                raise checks.value_error(op, "q (with cu_seqlens)", "a batch of 1", q.shape[0])
            self.starts, self.lengths = cu_seqlens[:-1].long(), cu_seqlens.diff().long()
        self.longest = int(self.lengths.max()) if len(self.lengths) else 0
        self.sizes = (v.shape[2], *(sizes[::-1] if v_first else sizes))
        if states is not None:
            checks.want_shape(op, "initial_state", states, (states.shape[0], *self.sizes))
        self.slots = self._slots_of_tokens(indices)
        self.first = self._first_slots(accepted)

    def _slots_of_tokens(self, indices: Tensor) -> Tensor:
        checks.want_tensor(self.op, "ssm_state_indices", indices)
        count = len(self.lengths)
        if indices.dim() not in (1, 2) or (indices.dim() == 1 and self.longest > 1):
            wanted = f"[{count}, {max(self.longest, 1)}]"
            raise checks.value_error(
                self.op, "ssm_state_indices", wanted, checks.shape_text(indices.shape)
            )
        slots = indices.long().view(-1, 1) if indices.dim() == 1 else indices.long()
        if len(slots) != count or slots.shape[1] < self.longest:
            wanted = f"[{count}, {max(self.longest, 1)} or more]"
            raise checks.value_error(
                self.op, "ssm_state_indices", wanted, checks.shape_text(indices.shape)
            )
        used = slots[:, : self.longest]
        used = used[torch.arange(self.longest, device=used.device) < self.lengths[:, None]]
        return self._known(slots, used)

    def _first_slots(self, accepted: Tensor | None) -> Tensor:
        if accepted is None:
            return self.slots[:, 0] if self.slots.shape[1] else self.slots.sum(1)
        checks.want_tensor(self.op, "num_accepted_tokens", accepted)
        checks.want_shape(self.op, "num_accepted_tokens", accepted, self.lengths.shape)
        counts, most = accepted.long()[self.lengths > 0], self.slots.shape[1]
        if counts.numel() and not 1 <= int(counts.min()) <= int(counts.max()) <= most:
            raise checks.value_error(
                self.op, "num_accepted_tokens", f"1 to {most}", accepted.tolist()
            )
        first = self.slots.gather(1, (accepted.long() - 1).clamp(0, most - 1).view(-1, 1))[:, 0]
        return self._known(first, first[self.lengths > 0])

    def _known(self, slots: Tensor, used: Tensor) -> Tensor:
        if self.states is not None and used.numel():
            least, most, count = int(used.min()), int(used.max()), self.states.shape[0]
            if least < 0 or most >= count:
                given = least if least < 0 else most
                raise checks.value_error(
                    self.op, "ssm_state_indices", f"slots 0 to {count - 1}", given
                )
        return slots

    def run(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        gates: Tensor,
        betas: Tensor,
        in_place: bool,
        options: dict[str, Any],
    ) -> tuple[Tensor, Tensor]:
        """The outputs, and the states after the tokens, [tokens, HV, K, V]: all sequences'
        first tokens, then their second ones. The pool is written after the last
        token."""
        rows = [one.flatten(0, 1) for one in (q, k, v, gates, betas)]
        dtype = torch.float64 if q.dtype == torch.float64 else torch.float32
        found = v.new_zeros(v.shape).flatten(0, 1)
        after = torch.zeros(len(found), *self.sizes, dtype=dtype, device=v.device)
        alive = (self.lengths > 0).nonzero()[:, 0]
        if self.states is None:
            state = after.new_zeros(len(alive), *self.sizes)
        else:
            state = self.states[self.first[alive]].to(dtype)
        for t in range(self.longest):
            if t > 0:
                longer = self.lengths[alive] > t
                alive, state = alive[longer], state[longer]
            at = self.starts[alive] + t
            one = [row[at].unsqueeze(1) for row in rows]
            out, new = _call.recurrence(
                self.op,
                *one[:3],
                gates=one[3],
                betas=one[4],
                initial_state=state,
                output_final_state=True,
                grouped=True,
                **options,
            )
            assert new is not None
            state = new
            found = found.index_copy(0, at, out[:, 0])
            with torch.no_grad():
                after.index_copy_(0, at, state.detach())
        if in_place and self.states is not None:
            with torch.no_grad():
                for t in range(self.longest):
                    alive = (self.lengths > t).nonzero()[:, 0]
                    written = after[self.starts[alive] + t].to(self.states.dtype)
                    self.states[self.slots[alive, t]] = written
        return found.view(v.shape), after
