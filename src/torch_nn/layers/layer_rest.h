// The rest of a layer after its last mixer: one operator where that knows the
// parts, otherwise part by part.
#pragma once

#include "torch_nn/layers/feed_forward.h"
#include "torch_nn/layers/norms.h"
#include "torch_nn/mixers/mixer.h"
#include "torch_nn/torch.h"

namespace tarn::nn {

/// A mixer's output before the maps that the rest of the layer applies itself.
struct Mixed {
  torch::Tensor rows;    // [B, T, V]
  torch::Tensor weight;  // [d_model, V]; undefined: rows need no product
  torch::Tensor bias;    // [d_model]; undefined: zeros
};

/// The `rows` of Mixer::Unprojected or ReadUnprojected.
Mixed Unfinished(torch::Tensor rows, const Mixer& mixer);
/// The `rows` of Mixer::Prefill, which lack only the bias.
Mixed Finished(torch::Tensor rows, const Mixer& mixer);

/// The rows after their last product, without the bias: [B, T, d_model].
torch::Tensor Projected(const Mixed& mixed);

/// The parts after the mixer. `end`: the norm of the result, null: pre-norm.
struct RestParts {
  const NormLayer& middle;
  const NormLayer* end;
  const FeedForward& feed_forward;
  double dropout;         // 0 outside training
  RowPlaces places = {};  // of x, as feed_forward reads them
};

/// s = x + drop(mixed), n = middle(s); pre-norm s + drop(FFN(n)), post-norm
/// end(n + drop(FFN(n))). x [B, T, d_model]; returns the same shape. Masks are
/// drawn in the order of the formula.
torch::Tensor RestOfLayer(const torch::Tensor& x, const Mixed& mixed,
                          const RestParts& parts);

}  // namespace tarn::nn
