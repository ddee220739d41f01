// What the modules of mixers/softmax/form.h share.
#pragma once

#include "mixers/softmax/form.h"
#include "torch_nn/mixers/common/projected.h"
#include "torch_nn/mixers/mixer.h"
#include "torch_nn/torch.h"
#include "torch_ops/layers/layers.h"
#include "torch_ops/softmax/attention.h"

namespace tarn::nn {

/// x / RMS(x) weight over the last axis, of weight.size(0) entries.
torch::Tensor RootNorm(const torch::Tensor& x, const torch::Tensor& weight,
                       double eps);

/// [B, T, heads * width] -> [B, T, heads, width].
inline torch::Tensor HeadsOf(const torch::Tensor& rows, int64_t count) {
  return rows.unflatten(2, {count, rows.size(2) / count});
}

/// x [B, T, H, K] with its first `width` channels rotated.
torch::Tensor RotateFirst(const torch::Tensor& x, int64_t width,
                          const RotaryTable& rotary);

/// Scale, soft cap, window and sinks of a layer (undefined: none); dropout: its
/// probability, 0 outside training.
ops::SoftmaxOptions OptionsOf(const SoftmaxForm& form,
                              const torch::Tensor& sinks, double dropout);

/// Registers a parameter "weight" of ones under a name.
torch::Tensor RegisterNorm(torch::nn::Module& module, const char* name,
                           int64_t width);
/// And a linear map.
torch::nn::Linear RegisterLinear(torch::nn::Module& module, const char* name,
                                 int64_t rows, int64_t columns, bool bias);

}  // namespace tarn::nn
