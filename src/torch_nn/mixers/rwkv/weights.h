// The parameters of an RWKV mixer, under the names of src/mixers/rwkv/spec.cc.
#pragma once

#include "mixers/rwkv/form.h"
#include "torch_nn/mixers/mixer.h"
#include "torch_nn/torch.h"

namespace tarn::nn {

/// Registers with `owner` what the mixer has, and holds it; the rest is null or
/// undefined. Shifts and decays begin as ramps over the channels, from layer to
/// layer others (weights.cc); matrices as those of torch.nn.Linear.
struct RwkvWeights {
  RwkvWeights(torch::nn::Module& owner, const RwkvSizes& sizes,
              const Depth& depth);

  torch::Tensor token_shift;              // [inputs, D]
  torch::Tensor shift_base;               // [D], RWKV-6
  torch::nn::Linear shift_down{nullptr};  // RWKV-6
  torch::Tensor shift_up;                 // [inputs D, rank], RWKV-6
  torch::nn::Linear query{nullptr}, key{nullptr}, value{nullptr};
  torch::nn::Linear decay_down{nullptr}, decay_up{nullptr};
  torch::nn::Linear rate_down{nullptr}, rate_up{nullptr};    // RWKV-7
  torch::nn::Linear value_down{nullptr}, value_up{nullptr};  // of reads_values
  torch::nn::Linear gate_down{nullptr}, gate_up{nullptr};    // RWKV-7
  torch::nn::Linear gate{nullptr};                           // RWKV-6
  torch::Tensor key_scale, key_rate;                         // [H K], RWKV-7
  torch::Tensor bonus;                                       // [H, K]
  torch::Tensor norm_weight, norm_bias;                      // [H K]
  torch::nn::Linear out{nullptr};
};

}  // namespace tarn::nn
