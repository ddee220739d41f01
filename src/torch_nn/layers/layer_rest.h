// What a layer does after its last mixer: one operator where it knows the
// parts, else part by part.
#pragma once

#include "torch_nn/layers/feed_forward.h"
#include "torch_nn/layers/norms.h"
#include "torch_nn/mixers/mixer.h"
#include "torch_nn/torch.h"

namespace tarn::nn {

/// What a mixer found, before the maps that the rest of the layer takes along.
struct Mixed {
  torch::Tensor rows;    // [B, T, V]
  torch::Tensor weight;  // [d_model, V]; undefined: the rows are whole
  torch::Tensor bias;    // [d_model]; undefined: zeros
};

/// `rows`, of Mixer::Unprojected or ReadUnprojected.
Mixed Unfinished(torch::Tensor rows, const Mixer& mixer);
/// `rows`, of Mixer::Prefill: the bias alone is left.
Mixed Finished(torch::Tensor rows, const Mixer& mixer);

/// The rows with their last product: [B, T, d_model], but for the bias.
torch::Tensor Projected(const Mixed& mixed);

/// The parts behind the mixer. `end`: the norm of the result, null: pre-norm.
struct RestParts {
  const NormLayer& middle;
  const NormLayer* end;
  const FeedForward& feed_forward;
  double dropout;  // 0 but in training
};

/// s = x + drop(mixed), n = middle(s); pre-norm s + drop(FFN(n)), post-norm
/// end(n + drop(FFN(n))). x [B, T, d_model]; returns the same shape. Masks are
/// drawn in the order of the formula.
torch::Tensor RestOfLayer(const torch::Tensor& x, const Mixed& mixed,
                          const RestParts& parts);

}  // namespace tarn::nn
