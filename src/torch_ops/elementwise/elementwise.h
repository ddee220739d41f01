// Elementwise recurrences on torch tensors: every channel is a state of one
// number with its own decay, the layer of HGRN.
// kernels/elementwise_recurrence/elementwise_recurrence.h has the equation.
//
// float32, bfloat16 and float16 by the kernel on the CPU; float64, other
// devices, torch.func and gradients of gradients by the composed form. Errors
// arrive as torch's, before any work. Thread-safe; the same bits for any number
// of threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

#include "torch_ops/common/call.h"

namespace tarn::ops {

/// One call: inputs and gates [B, T, D], each of any floating dtype; gates are
/// natural logarithms of decay factors, -inf an exact reset.
struct ElementwiseCall {
  at::Tensor inputs, gates;
  OptionalTensor lengths;        // [B] int32 or int64: tokens in use
  OptionalTensor cu_seqlens;     // [N + 1]: sequences packed along T; B = 1
  OptionalTensor initial_state;  // [B or N, D] float32 (float64); absent: zeros
  bool return_state = false;
};

/// out [B, T, D] in the dtype of inputs, 0 at pads; final_state [B or N, D],
/// [0] unless asked for; checkpoints, [0] unless a gradient will ask for them.
using ElementwiseResults = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

/// torch.ops.tarn.elementwise_recurrence. Throws c10::Error naming the
/// argument.
ElementwiseResults ElementwiseRecurrence(const ElementwiseCall& call);

/// Throws tarn::Error naming the argument; reads no data. Sizes may be
/// symbolic.
void CheckElementwise(const ElementwiseCall& call);

/// Computes the call by plain torch operators, differentiable to any order:
/// log2(T) passes, each of which doubles the tokens that a sum reaches back.
/// O(T log T) work, and memory for a gradient.
ElementwiseResults ComposedElementwise(const ElementwiseCall& call);

/// The kernel on a checked call of the CPU. checkpoints: whether a gradient
/// will follow.
ElementwiseResults ComputeElementwise(const ElementwiseCall& call,
                                      bool checkpoints);

/// Gradients of inputs, gates, initial_state, the last [0] where it is absent.
using ElementwiseGradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
/// checkpoints: of ComputeElementwise. grad_out, grad_state undefined: zero.
ElementwiseGradients ComputeElementwiseGradients(const ElementwiseCall& call,
                                                 const at::Tensor& checkpoints,
                                                 const at::Tensor& grad_out,
                                                 const at::Tensor& grad_state);

}  // namespace tarn::ops
