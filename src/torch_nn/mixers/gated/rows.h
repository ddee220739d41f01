// What a gated mixer does to rows around its recurrence, differentiable and on
// any device.
#pragma once

#include "mixers/gated/form.h"
#include "torch_nn/mixers/common/recurrent_rows.h"
#include "torch_nn/mixers/gated/weights.h"
#include "torch_nn/state/lengths.h"
#include "torch_nn/torch.h"
#include "torch_ops/gated/gated.h"
#include "torch_ops/rows/row_ops.h"

namespace tarn::nn {

/// What the recurrence of one layer reads, as ops::GatedOptions wants it;
/// undefined where the form has no such part.
struct GatedInputs {
  torch::Tensor queries, keys;  // [B, T, key_heads, C]
  torch::Tensor values;         // [B, T, H, V], one more where sums are divided
  torch::Tensor gates;          // [H], [B, T, H] or [B, T, H, K]
  torch::Tensor betas;          // [B, T, H]
  torch::Tensor skipped;        // [B, T, H, V], what D multiplies
};

/// The logarithms of the decay, [H], [B, T, H] or [B, T, H, K], of projected
/// numbers x [B, T, gates] (bounds: those of kBounded, [gates]); second: the
/// steps [B, T, H] of a form with a skip, the keys [B, T, H, K] of kBounded.
/// Undefined without a gate.
ops::DecayGateResult Gates(const GatedForm& form, const GatedSizes& sizes,
                           const GatedWeights& weights, const torch::Tensor& x,
                           const torch::Tensor& bounds);

/// The features [B, T, H, C] of queries, or keys, [B, T, H, K]. map, factor: A
/// and B of form_features.h, null where the map has none.
torch::Tensor HeadFeatures(const QkFeatures& phi, const torch::nn::Linear& map,
                           const torch::nn::Linear& factor, bool unit,
                           const torch::Tensor& x);

/// Values with a 1 after those of each head, where sums are divided; and the
/// quotient of what the recurrence made of them.
torch::Tensor CountedValues(const QkFeatures& phi, const torch::Tensor& values);
torch::Tensor DividedSums(const QkFeatures& phi, const torch::Tensor& sums);

/// The output norm and its gate: heads [B, T, H, V], gate [B, T, H V] or
/// undefined -> [B, T, H V] in the dtype of heads.
torch::Tensor NormOutput(const GatedForm& form, const GatedSizes& sizes,
                         const torch::Tensor& weight,
                         const torch::Tensor& heads, const torch::Tensor& gate);

/// The recurrence. lengths, initial undefined: all tokens, from zeros.
ops::GatedResult Recur(const GatedForm& form, const GatedSizes& sizes,
                       const GatedInputs& in, const torch::Tensor& lengths,
                       const torch::Tensor& initial, bool return_state);

}  // namespace tarn::nn
