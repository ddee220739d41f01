// aft-full over one sequence, in blocks of queries and keys, forward and back.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tarn::ops {

/// One sequence in one floating type, C channels wide. `kept` [S] bool and
/// `allowed` [T, S] bool may be undefined: everything. Values of keys that are
/// not kept hold no NaN.
struct AftPlane {
  at::Tensor queries;        // [T, C]
  at::Tensor keys, values;   // [S, C]
  at::Tensor position_bias;  // [>= T, >= S]
  at::Tensor kept, allowed;
  bool causal = false;
  int64_t reach = 0;  // causal: j <= i + reach
};

/// average = sum p_ij v_j, normaliser = log sum exp(k_j + w_ij), +infinity
/// where nothing is read; out = sigma(q) average. All [T, C], written.
struct AftPlaneResult {
  at::Tensor out, average, normaliser;
};
void AftPlaneForward(const AftPlane& in, const AftPlaneResult& result);

/// Writes the gradients of queries [T, C], keys and values [S, C] and adds to
/// that of position_bias; `result` as the forward pass left it.
struct AftPlaneGradients {
  at::Tensor queries, keys, values, position_bias;
};
void AftPlaneBackward(const AftPlane& in, const AftPlaneResult& result,
                      const at::Tensor& grad_out,
                      const AftPlaneGradients& gradients);

}  // namespace tarn::ops
