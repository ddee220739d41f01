// What the forms of the softmax operators share: the arguments of a call as one
// value, their checks, the composed forms.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymInt.h>

#include <string>
#include <tuple>

#include "torch_ops/common/call.h"
#include "torch_ops/softmax/attention.h"

namespace tarn::ops {

/// One call. local_context: 0 for every key.
struct SoftmaxCall {
  at::Tensor queries, keys, values;
  AttentionMasks masks;
  SoftmaxOptions options;
  c10::SymInt local_context = 0;

  /// The factor of q . k. Not for a width that a compiler traces as a symbol
  /// unless softmax_temp is given: it becomes a constant of the trace.
  double temperature() const;
  /// Whether the composed form serves the call.
  bool composes() const {
    return !KernelServesAttention(queries, keys, values, options.bias,
                                  options.sinks);
  }
};

using TwoTensors = std::tuple<at::Tensor, at::Tensor>;

/// Throws ShapeError or DeviceError unless `plane` broadcasts to [B, H, T, S].
void WantPlane(const std::string& where, const at::Tensor& plane,
               const at::Tensor& queries, const at::Tensor& keys);

/// [B, S] bool of the keys that key_mask and key_lengths keep; undefined: all.
at::Tensor KeptKeys(const AttentionMasks& masks, const at::Tensor& keys);

/// causal_offset, no further than from the first key to the last query.
inline c10::SymInt Reach(const AttentionMasks& masks,
                         const c10::SymInt& queries, const c10::SymInt& keys) {
  return masks.causal_offset.max(-queries).min(keys);
}

/// Checks everything but the data of key_lengths under a compiler. `op` begins
/// the messages. Throws tarn::Error.
void CheckSoftmaxCall(const char* op, const SoftmaxCall& call);

/// Weights [B, H, T, S] before dropout, from plain torch operators, in float64
/// for float64 queries, else in float32. Differentiable to any order. O(B H T
/// S) memory.
at::Tensor ComposedSoftmaxWeights(const SoftmaxCall& call);

/// The output from such weights, in the dtype of values. A value that a query
/// may not read for its position alone is multiplied by 0: NaN there spreads.
at::Tensor ComposedSoftmaxOutput(const SoftmaxCall& call,
                                 const at::Tensor& weights);

/// The operator's composed form, with empty statistics: a window of keys in
/// blocks of queries, O(T c) for local_context c, else every key at once. For
/// causality alone, a device other than the CPU runs torch's
/// scaled_dot_product_attention, which keeps no T x S array.
TwoTensors ComposedSoftmax(const SoftmaxCall& call);

/// [B, H, T, width] int64: positions of the highest scores, as
/// BlockedAttentionTopk has them. width <= S. Not differentiable.
at::Tensor ComposedTopkIndices(const SoftmaxCall& call,
                               const c10::SymInt& width);
/// The same through the dispatcher: the kernel but for float64.
at::Tensor CallTopkIndices(const SoftmaxCall& call, const c10::SymInt& width);

/// Exact top-k: (out, weights), weights [0] unless wanted.
TwoTensors ComposedExactTopk(const SoftmaxCall& call, int64_t topk,
                             bool need_weights);

}  // namespace tarn::ops
