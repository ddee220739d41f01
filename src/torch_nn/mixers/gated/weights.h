// The parameters of a gated mixer, under the names of src/mixers/gated/spec.cc.
#pragma once

#include <vector>

#include "mixers/gated/form.h"
#include "torch_nn/mixers/common/recurrent_rows.h"
#include "torch_nn/mixers/mixer.h"
#include "torch_nn/torch.h"

namespace tarn::nn {

/// Registers with `owner` what the form has, and holds it; the rest is null or
/// undefined. Matrices begin as those of torch.nn.Linear and filters as those
/// of torch.nn.Conv1d; weights.cc has the other beginnings and their sources.
struct GatedWeights {
  GatedWeights(torch::nn::Module& owner, const GatedForm& form,
               const GatedSizes& sizes, const Depth& depth);

  /// The maps that read a row of the layer, in the order of their results.
  std::vector<torch::Tensor> FirstMaps() const;
  /// Their biases; empty without in_bias.
  std::vector<torch::Tensor> FirstBiases() const;
  /// Rows of each of them.
  std::vector<int64_t> FirstWidths() const;

  torch::nn::Linear query{nullptr}, key{nullptr}, value{nullptr};
  torch::nn::Linear gate{nullptr};   // of the output, or down to its rank
  torch::nn::Linear decay{nullptr};  // of the gates, or down to their rank
  torch::nn::Linear beta{nullptr};
  torch::nn::Linear gate_up{nullptr}, decay_up{nullptr}, out{nullptr};
  // Of the features of queries and keys: A and B of form_features.h.
  torch::nn::Linear query_map{nullptr}, query_factor{nullptr};
  torch::nn::Linear key_map{nullptr}, key_factor{nullptr};
  torch::Tensor log_decay;          // [H], a buffer
  torch::Tensor lower_bound;        // [H K], a buffer
  torch::Tensor bound_logits;       // [layers, H K], of the first layer
  torch::Tensor A_log, dt_bias, D;  // [H], [gates], [H]
  ConvolutionFilters convolution;   // undefined of width 0
  torch::Tensor norm;               // [V] or [H V]; undefined: none

 private:
  std::vector<torch::nn::Linear> First() const;
};

}  // namespace tarn::nn
