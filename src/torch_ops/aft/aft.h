// Attention-free transformers (Zhai et al. 2021, arXiv 2105.14103) on torch
// tensors: a weighted average per channel, gated by the query.
//   aft-full:   o_i = sigma(q_i) * sum_{j in A(i)} exp(k_j + w_ij) v_j
//                               / sum_{j in A(i)} exp(k_j + w_ij)
//   aft-simple: the same with w = 0, which has a recurrent form
// Everything is elementwise in the channels, so queries, keys and values share
// one width. A(i): the keys query i may read; what is not allowed is skipped,
// NaN there has no influence. A query that reads nothing gets 0 and sends no
// gradient. Both are strictly causal under a causal mask.
//
// float32 and float64; bfloat16 and float16 are computed in float32. Once
// differentiable. Errors arrive as torch's: c10::TypeError for dtypes,
// c10::ValueError for the rest, before any work. Thread-safe; the same bits
// with any other rows in the batch, aft-simple also for any number of threads.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymInt.h>

#include <optional>

#include "torch_ops/softmax/attention.h"

namespace tarn::ops {

/// What aft-simple carries from one token to the next, per channel:
/// m = max k_j, a = sum exp(k_j - m) v_j, b = sum exp(k_j - m), each
/// [B, H, V], float32 (float64 with float64 queries). Before the first key:
/// m = -infinity, a = b = 0. A value: nothing changes it in place.
struct AftState {
  at::Tensor m, a, b;
};

struct AftSimpleOptions {
  bool causal = false;
  c10::SymInt causal_offset = 0;  // query i reads keys j <= i + causal_offset
  OptionalTensor key_mask;        // [B, S] bool, true = keep
  OptionalTensor key_lengths;     // [B] int32 or int64
  std::optional<AftState> initial_state;  // receives a gradient
};

struct AftSimpleResult {
  at::Tensor out;  // [B, T, H, V], dtype of queries
  AftState state;  // after all kept keys, differentiable
};

/// queries [B, T, H, V], keys and values [B, S, H, V], of one dtype.
/// One pass over the keys with a running maximum: O(B (T + S) H V) time,
/// O(B T H V) memory. Under causal, prefill(a) then prefill(b) gives the bits
/// of prefill(ab), and a step is a call with T = S = 1 and the last state.
AftSimpleResult AftSimple(const at::Tensor& queries, const at::Tensor& keys,
                          const at::Tensor& values,
                          const AftSimpleOptions& options = {});

/// queries [B, T, H, V], keys and values [B, S, H, V]; position_bias
/// [>= T, >= S] in their dtype, differentiable: w_ij is its upper left corner.
/// O(B T S H V) time, in matrix products wherever their range is safe; memory
/// in blocks, O(B (T + S) H V) and no T x S array beyond masks, bias and its
/// gradient. Returns [B, T, H, V].
at::Tensor AftFull(const at::Tensor& queries, const at::Tensor& keys,
                   const at::Tensor& values, const at::Tensor& position_bias,
                   const AttentionMasks& masks = {});

}  // namespace tarn::ops
