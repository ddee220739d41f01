// The differentiable part of reformer attention, from plain torch operators on
// given buckets; autograd follows it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "torch_ops/sparse/reformer.h"

namespace tarn::ops {

/// What a call computes from, besides queries and values.
struct ReformerPlan {
  ReformerOptions options;
  double softmax_temp = 1.0;
  bool causal = false;
  int64_t causal_offset = 0;
  at::Tensor attention_mask;  // broadcastable to [B, H, T, T] or undefined
  at::Tensor kept;            // [B, T] bool or undefined
  at::Tensor buckets;         // [B, H, rounds, T] int32
};

/// queries [B, T, H, K], values [B, T, H, V]; returns [B, T, H, V] in their
/// compute type.
at::Tensor ComputeReformer(const ReformerPlan& plan, const at::Tensor& queries,
                           const at::Tensor& values);

/// Queries [B, T, H, K] in their compute type; what is not finite at positions
/// that are not kept is 0.
at::Tensor ReformerQueries(const at::Tensor& queries, const at::Tensor& kept);

}  // namespace tarn::ops
