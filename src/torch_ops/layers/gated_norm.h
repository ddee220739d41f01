// What the forms of the gated norm share: its checks, its composed form and its
// kernel.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

#include "torch_ops/layers/layers.h"

namespace tarn::ops::gated_norm {

/// Gradients of x, weight, bias, gate; [0] for what is absent.
using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

/// Throws tarn::Error naming the argument; reads no data. Sizes may be
/// symbolic.
void Check(const GatedNormCall& call);

/// Computes the call by plain torch operators, differentiable to any order.
at::Tensor Composed(const GatedNormCall& call);

/// The kernel on a checked call of the CPU.
at::Tensor Compute(const GatedNormCall& call);
Gradients ComputeGradients(const GatedNormCall& call,
                           const at::Tensor& grad_out);

}  // namespace tarn::ops::gated_norm
