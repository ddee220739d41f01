// Makes values of the flat arguments that torch has for a token's layers.
#pragma once

#include <ATen/core/List.h>

#include "torch_ops/recurrent/layer_call.h"

namespace tarn::ops::layer_step {

using TensorList = c10::List<OptionalTensor>;

/// Throws an error for unknown words.
Kind MakeKind(int64_t n_heads, c10::string_view activation,
              c10::string_view norm_kind, double norm_eps, bool pre_norm);

/// "linear" or "full"; name: the argument's.
Mixer ParseMixer(const char* name, c10::string_view mixer);

/// Layers: a state and their weights each; no states: zeros.
std::vector<Call> MakeLayers(const at::Tensor& x, at::TensorList S,
                             at::TensorList z, const TensorList& weights,
                             const Kind& kind);

/// Throws an error for an invalid norm after the last layer.
void CheckLastNorm(const at::Tensor& x, const After& after);

}  // namespace tarn::ops::layer_step
