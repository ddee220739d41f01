// How a short convolution is cut: sequences and blocks of channels. Plain
// integers, no tensor data.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/short_convolution/short_convolution.h"

namespace tarn {

// Channels of a task: four AVX-512 vectors, whose windows stay in registers.
constexpr int64_t kConvolutionChannels = 64;
constexpr int64_t kMostTaps = 8;

struct ConvolutionSpan {
  int64_t batch, first, tokens, rows;  // rows: with the padding
};

inline ConvolutionSpan ConvolutionSpanAt(const ShortConvolutionInputs& in,
                                         int64_t index) {
  if (in.cu_seqlens != nullptr) {
    const int64_t first = in.cu_seqlens[index];
    const int64_t tokens = in.cu_seqlens[index + 1] - first;
    return {0, first, tokens, tokens};
  }
  const int64_t rows = in.inputs.size[1];
  return {index, 0, in.lengths != nullptr ? in.lengths[index] : rows, rows};
}

inline int64_t ConvolutionBlocks(const ShortConvolutionInputs& in) {
  return (in.inputs.size[3] + kConvolutionChannels - 1) / kConvolutionChannels;
}

// CheckShortConvolution for a result that messages call `name`.
void CheckConvolutionCall(const ShortConvolutionInputs& in,
                          const TensorView& out, const char* name);

// Throws unless `view` has the shape and dtype of the inputs, and data.
void CheckConvolutionTensor(const ShortConvolutionInputs& in,
                            const TensorView& view, const char* name);

// One task: a sequence and a block of channels.
struct ConvolutionTask {
  const ShortConvolutionInputs* in;
  const TensorView* out;                      // forward
  float* final_state;                         // forward
  const ShortConvolutionGradients* gradient;  // backward
  float* sums;  // backward: [W + 1, D], dw by taps and then db, of the sequence
  int64_t sequence, channel, channels;
};

}  // namespace tarn
