// Short causal convolutions on torch tensors: one filter a channel over the
// last few tokens, as used before the recurrences of Mamba-2, Gated
// DeltaNet and KDA. kernels/short_convolution/short_convolution.h has the
// equation.
//
// float32, bfloat16 and float16 by the kernel on the CPU; float64, other
// devices, torch.func and gradients of gradients by the composed form. Errors
// arrive as torch's, before any work. Thread-safe; the same bits for any number
// of threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <tuple>

#include "torch_ops/common/call.h"

namespace tarn::ops {

/// One call: inputs [B, T, D]; weights [D, W], W from 2 to 8, and bias [D], of
/// any floating dtype; the last column of weights meets the present token.
struct ConvolutionCall {
  at::Tensor inputs, weights;
  OptionalTensor bias;
  std::string activation = "silu";  // or "none"
  OptionalTensor lengths;           // [B] int32 or int64: tokens in use
  OptionalTensor cu_seqlens;        // [N + 1]: sequences packed along T; B = 1
  // [B or N, W - 1, D] float32 (float64): the inputs before the first token,
  // the oldest first. Absent: zeros.
  OptionalTensor initial_state;
  bool return_state = false;
};

/// out [B, T, D] in the dtype of inputs, 0 at pads; final_state [B or N, W - 1,
/// D], [0] unless asked for.
using ConvolutionResults = std::tuple<at::Tensor, at::Tensor>;
/// O(B T D W) time; saves the inputs for the gradient.
ConvolutionResults ShortConvolution(const ConvolutionCall& call);

}  // namespace tarn::ops
