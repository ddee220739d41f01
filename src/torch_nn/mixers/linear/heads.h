// Linear attention of a layer's heads as one function of their state; whole
// sequences are the case without a state. A rotation after the feature map
// takes two calls of the operator.
#pragma once

#include "mixers/linear/form.h"
#include "torch_nn/layers/positions.h"
#include "torch_nn/torch.h"
#include "torch_ops/feature_maps/feature_maps.h"

namespace tarn::nn {

struct LinearHeads {
  torch::Tensor queries;      // [B, T, H, K]
  torch::Tensor keys;         // [B, S, H, K]
  torch::Tensor values;       // [B, S, H, V]
  torch::Tensor key_mask;     // [B, S] bool; undefined: all
  torch::Tensor key_lengths;  // [B] int64; undefined: S
  torch::Tensor omega;        // of a random feature map [K, columns]
  bool causal = true;
};

/// -> [B, T, H, V] by the config's feature map and denominator. Where `sums` is
/// given, the keys are added to it (undefined tensors: zeros) and it is
/// replaced by the new sums; differentiable. O(T + S) time.
torch::Tensor AttendLinearHeads(const LinearKeys& keys,
                                const LinearHeads& heads,
                                ops::LinearState* sums);

/// The same with queries and keys rotated after the feature map (Su et al.
/// 2021, eq. (19)): o_i = sum_j (R_i phi(q_i)) . (R_j phi(k_j)) v_j / sum_j
/// phi(q_i) . phi(k_j). S holds rotated features, z unrotated ones.
torch::Tensor AttendTurnedAfter(const LinearKeys& keys,
                                const LinearHeads& heads,
                                const RotaryTable& rotary,
                                ops::LinearState* sums);

/// One of the two above, as the config's rotary_place and the table say; an
/// undefined table rotates nothing.
torch::Tensor AttendTurned(const LinearKeys& keys, const LinearHeads& heads,
                           const RotaryTable& rotary, ops::LinearState* sums);

}  // namespace tarn::nn
