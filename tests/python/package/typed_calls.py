"""What type checkers infer of operators whose options change what they return. The test
`types` checks it (pyproject.toml); nothing runs it."""

from typing import assert_type

from torch import Tensor

from tarn import ops

Pair = tuple[Tensor, Tensor]


def recurrences(x: Tensor, gates: Tensor, flag: bool) -> None:
    assert_type(ops.decay_attention(x, x, x, gates=gates, scale=1.0), Tensor)
    assert_type(ops.decay_attention(x, x, x, gates=gates, return_state=True), Pair)
    assert_type(ops.decay_attention(x, x, x, return_state=flag), Tensor | Pair)
    assert_type(ops.delta_attention(x, x, x, gates), Tensor)
    assert_type(ops.delta_attention(x, x, x, gates, return_state=True), Pair)
    assert_type(ops.dplr_attention(x, x, x, x, x), Tensor)
    assert_type(ops.dplr_attention(x, x, x, x, x, return_state=True), Pair)
    assert_type(ops.decay_gate(x), Tensor)
    assert_type(ops.decay_gate(x, None, x, form="bounded", return_second=True), Pair)
    assert_type(ops.decay_gate(x, return_second=flag), Tensor | Pair)
    assert_type(ops.retention(x, x, x), Tensor)
    assert_type(ops.retention(x, x, x, return_state=True), Pair)
    assert_type(ops.lightning_attention(x, x, x, 0, 4), Tensor)
    assert_type(ops.lightning_attention(x, x, x, 0, 4, return_state=True), Pair)
    assert_type(ops.gated_linear_attention(x, x, x, gates), Tensor)
    assert_type(ops.gated_linear_attention(x, x, x, gates, return_state=True), Pair)
    assert_type(ops.rwkv6(x, x, x, gates, gates), Tensor)
    assert_type(ops.rwkv6(x, x, x, gates, gates, return_state=True), Pair)
    assert_type(ops.rwkv7(x, gates, x, x, x, x), Tensor)
    assert_type(ops.rwkv7(x, gates, x, x, x, x, return_state=True), Pair)
    assert_type(ops.delta_rule(x, x, x, gates), Tensor)
    assert_type(ops.delta_rule(x, x, x, gates, return_state=True), Pair)
    assert_type(ops.gated_delta_rule(x, x, x, gates, gates, normalize=True), Tensor)
    assert_type(ops.gated_delta_rule(x, x, x, gates, gates, return_state=True), Pair)
    assert_type(ops.kda(x, x, x, gates, gates), Tensor)
    assert_type(ops.kda(x, x, x, gates, gates, return_state=True), Pair)
    assert_type(ops.ssd(x, gates, x, x, x, D=x), Tensor)
    assert_type(ops.ssd(x, gates, x, x, x, return_state=True), Pair)
    assert_type(ops.ssd(x, gates, x, x, x, return_state=flag), Tensor | Pair)
    assert_type(ops.short_convolution(x, x, activation="none"), Tensor)
    assert_type(ops.short_convolution(x, x, return_state=True), Pair)
    assert_type(ops.elementwise_recurrence(x, x), Tensor)
    assert_type(ops.elementwise_recurrence(x, x, return_state=True), Pair)
    assert_type(ops.rg_lru(x, x, x, x), Tensor)
    assert_type(ops.rg_lru(x, x, x, x, return_state=True), Pair)
    assert_type(ops.mlstm(x, x, x, x, x, softcap=15.0), Tensor)
    assert_type(ops.mlstm(x, x, x, x, x, return_state=True), tuple[Tensor, Pair])
    assert_type(ops.selective_scan(x, x, x, x, x), Tensor)
    assert_type(ops.selective_scan(x, x, x, x, x, return_state=True), Pair)


def sums(x: Tensor, flag: bool) -> None:
    assert_type(ops.linear_attention(x, x, x, causal=False), Tensor)
    out, state = ops.linear_attention(x, x, x, return_state=True)
    assert_type(out, Tensor)
    assert_type(state, ops.LinearState)
    assert_type(ops.linear_attention(x, x, x, initial_state=state), Tensor)
    assert_type(ops.linear_attention(x, x, x, initial_state=(x, x)), Tensor)
    assert_type(
        ops.linear_attention(x, x, x, return_state=flag), Tensor | tuple[Tensor, ops.LinearState]
    )
    assert_type(ops.linear_attention_step(x, x, x, state), tuple[Tensor, ops.LinearState])
    assert_type(ops.mapped_linear_attention(x, x, x, feature_map="poly2"), Tensor)
    _, clamped = ops.mapped_linear_attention(x, x, x, return_clamped=True)
    assert_type(clamped, Tensor)
    _, state, clamped = ops.mapped_linear_attention(x, x, x, return_state=True, return_clamped=True)
    assert_type(state, ops.LinearState)
    assert_type(clamped, Tensor)
    assert_type(ops.aft_simple_attention(x, x, x), Tensor)
    assert_type(ops.aft_simple_attention(x, x, x, return_state=True), tuple[Tensor, ops.AftState])


def averages(x: Tensor, flag: bool) -> None:
    assert_type(ops.full_attention(x, x, x, causal=True), Tensor)
    assert_type(ops.full_attention(x, x, x, need_weights=True), Pair)
    assert_type(ops.full_attention(x, x, x, need_weights=flag), Tensor | Pair)
    assert_type(ops.exact_topk_attention(x, x, x, topk=3), Tensor)
    assert_type(ops.exact_topk_attention(x, x, x, topk=3, need_weights=True), Pair)


def layers(x: Tensor) -> None:
    assert_type(ops.residual_norm(x, x), tuple[None, Tensor])
    assert_type(ops.residual_norm(x, gamma=x), Pair)
    assert_type(ops.residual_norm(x, x, x, x, x), Pair)
    assert_type(ops.draw_seed(), Tensor)
    assert_type(ops.draw_seed(0.5), Tensor | None)
