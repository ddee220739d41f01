// Short causal convolution over time, one filter per channel, as used
// before the recurrences of Mamba-2, Gated DeltaNet and KDA (causal_conv1d):
//
//   z_t[c] = bias[c] + sum_{j=0}^{W-1} weight[c, j] x_{t-W+1+j}[c]
//   y_t[c] = z_t[c], or silu(z_t[c]) = z_t[c] / (1 + exp(-z_t[c]))
//
// The last tap meets the present token. Tokens before the first come from the
// state, which holds the last W - 1 inputs, or are zero.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/executor.h"
#include "core/tensor_view.h"

namespace tarn {

enum class ConvolutionActivation { kNone, kSilu };

/// Tensors of one call. Inputs are float32, bfloat16 or float16, arithmetic and
/// states float32. With cu_seqlens, B = 1 and N sequences are packed along T.
struct ShortConvolutionInputs {
  TensorView inputs;               // [B, T, 1, D]
  const float* weights = nullptr;  // [D, W] dense
  const float* bias = nullptr;     // [D] or null
  int64_t width = 0;               // W, 2 to 8
  ConvolutionActivation activation = ConvolutionActivation::kSilu;
  const int64_t* lengths = nullptr;     // [B]: tokens in use, the rest pads
  const int64_t* cu_seqlens = nullptr;  // [sequences + 1], host memory
  int64_t sequences = 0;                // with cu_seqlens
  // [B or sequences, W - 1, D] dense, oldest first; null means zeros.
  const float* initial_state = nullptr;

  int64_t SequenceCount() const {
    return cu_seqlens != nullptr ? sequences : inputs.size[0];
  }
};

struct ShortConvolutionGradients {
  TensorView grad_out;                      // [B, T, 1, D]
  const float* grad_final_state = nullptr;  // null means zero
  TensorView grad_inputs;                   // written, as inputs
  float* grad_weights = nullptr;            // [D, W], written when not null
  float* grad_bias = nullptr;               // [D], written when not null
  float* grad_initial_state = nullptr;      // written when not null
};

/// Throws ShapeError, DTypeError or ArgumentError naming the argument.
void CheckShortConvolution(const ShortConvolutionInputs& in,
                           const TensorView& out);

/// out [B, T, 1, D], dtype of the inputs; rows of padding are zero.
/// final_state, null or [B or sequences, W - 1, D], may be the initial state's
/// memory: a step is a call with T = 1 and the state in both places, and any
/// split of a sequence gives the same bits. Checks first, then runs on
/// `executor`. Allocates nothing. Same bits for any executor width. T, B = 0
/// are valid.
void ShortConvolutionForward(const ShortConvolutionInputs& in,
                             const TensorView& out, float* final_state,
                             Executor& executor);

/// Channels [first, first + count) of such a call, on the calling thread, with
/// the same bits. Arguments are not checked.
void ShortConvolutionChannels(const ShortConvolutionInputs& in,
                              const TensorView& out, float* final_state,
                              int64_t first, int64_t count);

/// Bytes of 64-byte aligned scratch for the gradient: (W + 1) D floats a
/// sequence.
size_t ShortConvolutionGradientBytes(const ShortConvolutionInputs& in);

/// Gradients of a scalar loss; z is computed again, nothing is saved.
void ShortConvolutionBackward(const ShortConvolutionInputs& in,
                              const ShortConvolutionGradients& gradients,
                              Executor& executor, void* workspace);

}  // namespace tarn
