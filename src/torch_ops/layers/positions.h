// Rotary positions on torch tensors.
#pragma once

#include <ATen/core/Tensor.h>

namespace tarn::ops {

/// Rotates heads [..., H, K] by angles whose cosines and sines broadcast over
/// [..., H, K / 2], halves form (Su et al. 2021): (x_i, x_{i+K/2}) ->
/// (x_i cos - x_{i+K/2} sin, x_{i+K/2} cos + x_i sin). Differentiable.
at::Tensor RotateHeads(const at::Tensor& heads, const at::Tensor& cos,
                       const at::Tensor& sin);

}  // namespace tarn::ops
