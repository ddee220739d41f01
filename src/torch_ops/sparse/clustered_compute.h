// The differentiable part of clustered attention, from plain torch operators on
// given clusters; autograd follows it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "torch_ops/layers/layers.h"

namespace tarn::ops {

enum class ClusteredKind { kClustered, kImproved, kCausalImproved };

/// What a call computes from, besides queries, keys and values.
struct ClusteredPlan {
  ClusteredKind kind = ClusteredKind::kClustered;
  int64_t clusters = 1;
  int64_t topk = 32;
  double softmax_temp = 1.0;
  Dropout dropout;
  at::Tensor cluster;  // [B, H, T] int64, -1 in padding
  at::Tensor kept;     // [B, S] bool or undefined
};

/// queries [B, T, H, K], keys [B, S, H, K], values [B, S, H, V]; returns
/// [B, T, H, V] in their compute type.
at::Tensor ComputeClustered(const ClusteredPlan& plan,
                            const at::Tensor& queries, const at::Tensor& keys,
                            const at::Tensor& values);

/// For each cluster that has members the `topk` kept keys of the highest
/// scores, ties to the lower position: [B, H, C, min(topk, S)] int64. Places
/// beyond the kept keys hold keys that are not kept. scores [B, H, C, S].
at::Tensor TopKeys(const at::Tensor& scores, const at::Tensor& kept,
                   const at::Tensor& members, int64_t topk);

/// Queries of one cluster, kGroupRows at a time, so that their scores against
/// the keys of that cluster are batched matrix products: G groups over all
/// sequences and heads.
constexpr int64_t kGroupRows = 32;
struct ClusterGroups {
  at::Tensor rows;     // [G 32] rows of [B H T]; free places repeat a member
  at::Tensor cluster;  // [G] rows of [B H C]
  at::Tensor place;    // [B H T] places in [G 32]; 0 in padding
};
ClusterGroups GroupByCluster(const at::Tensor& cluster, int64_t clusters);

}  // namespace tarn::ops
