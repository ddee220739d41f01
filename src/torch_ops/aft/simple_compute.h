// The computation of a checked call of aft-simple: float32 by the kernel
// (bfloat16 and float16 widened first), float64 by the scan of scan.h.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymInt.h>

#include <tuple>

#include "torch_ops/softmax/attention.h"

namespace tarn::ops {

/// Arguments of the operator; shapes as in AftSimple. m, a, b: the initial
/// state, all three or none.
struct AftSimpleCall {
  at::Tensor queries, keys, values;
  OptionalTensor key_mask, key_lengths, m, a, b;
  bool causal = false;
  c10::SymInt causal_offset = 0;
};

/// out [B, T, H, V] in the queries' dtype and the final m, a, b [B, H, V].
using AftSimpleResults =
    std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

/// Gradients of the results; undefined: zero.
struct AftSimpleResultGradients {
  at::Tensor out, m, a, b;
};

/// Gradients of queries, keys, values, and the initial m, a, b.
using AftSimpleGradientResults = std::tuple<at::Tensor, at::Tensor, at::Tensor,
                                            at::Tensor, at::Tensor, at::Tensor>;

AftSimpleResults ComputeAftSimple(const AftSimpleCall& in);
/// The composed form, on any device, differentiable to any order.
AftSimpleResults ComposedAftSimple(const AftSimpleCall& in);
/// Throws ShapeError for gradients of other shapes than the results.
AftSimpleGradientResults ComputeAftSimpleGradients(
    const AftSimpleCall& in, const AftSimpleResultGradients& grad);

}  // namespace tarn::ops
