// The attention layer: four projections around one attention operator. Kinds:
// "linear" (the fused operator) and "full" (softmax, composed from torch).
#pragma once

#include <torch/torch.h>

#include "core/config.h"
#include "pytorch/modules_positions.h"

namespace tarn::nn {

/// Causal self-attention over a sequence. Owns query_projection and
/// key_projection [H K, D], value_projection [H V, D] and out_projection
/// [D, H V], each with a bias; head h is the h-th block of K (or V) rows.
/// Not thread-safe while training; forward alone changes nothing.
class AttentionLayerImpl : public torch::nn::Module {
 public:
  /// config: finished (FinishConfig); throws ArgumentError otherwise.
  explicit AttentionLayerImpl(const ModelConfig& config);

  /// x [B, T, d_model] -> [B, T, d_model], dtype and device of x. `rotary`:
  /// MakeRotaryTable(config, T, x). Attention dropout acts in training mode on
  /// the "full" kind only. Linear kind: O(T) time and memory.
  torch::Tensor forward(const torch::Tensor& x, const RotaryTable& rotary = {});

  /// forward without the bias of out_projection, for a caller that adds it in
  /// a later pass (ops::ResidualNorm).
  torch::Tensor Unbiased(const torch::Tensor& x,
                         const RotaryTable& rotary = {});

  torch::nn::Linear query_projection{nullptr}, key_projection{nullptr},
      value_projection{nullptr}, out_projection{nullptr};

 private:
  torch::Tensor Attend(const torch::Tensor& packed,
                       const RotaryTable& rotary) const;
  torch::Tensor AttendLinear(const torch::Tensor& queries,
                             const torch::Tensor& keys,
                             const torch::Tensor& values,
                             const RotaryTable& rotary) const;
  torch::Tensor AttendRotatedAfter(const torch::Tensor& queries,
                                   const torch::Tensor& keys,
                                   const torch::Tensor& values,
                                   const RotaryTable& rotary) const;
  torch::Tensor AttendFull(const torch::Tensor& queries,
                           const torch::Tensor& keys,
                           const torch::Tensor& values,
                           const RotaryTable& rotary) const;

  ModelConfig config_;
};
TORCH_MODULE(AttentionLayer);

}  // namespace tarn::nn
