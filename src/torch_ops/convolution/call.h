// What the forms of the short convolution share: its checks, its composed form
// and its kernel.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

#include "torch_ops/convolution/convolution.h"

namespace tarn::ops::convolution {

/// Gradients of inputs, weights, bias, initial_state; [0] for what is absent.
using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

/// Throws tarn::Error naming the argument; reads no data. Sizes may be
/// symbolic.
void Check(const ConvolutionCall& call);

/// Computes the call by plain torch operators, differentiable to any order;
/// O(B T D W) memory.
ConvolutionResults Composed(const ConvolutionCall& call);

/// The kernel on a checked call of the CPU.
ConvolutionResults Compute(const ConvolutionCall& call);
/// grad_out, grad_state undefined: zero.
Gradients ComputeGradients(const ConvolutionCall& call,
                           const at::Tensor& grad_out,
                           const at::Tensor& grad_state);

}  // namespace tarn::ops::convolution
