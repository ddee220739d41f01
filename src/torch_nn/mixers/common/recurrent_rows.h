// What mixers with a decaying state have in common around their recurrence,
// differentiable and on any device. Steps and gates are computed in float32
// (float64 for float64) whatever the weights' dtype, as their sums decide over
// a whole sequence.
#pragma once

#include "torch_nn/state/sequence_cut.h"
#include "torch_nn/torch.h"

namespace tarn::nn {

/// float64 for float64, else float32; and x in that type.
torch::ScalarType WideType(const torch::Tensor& x);
torch::Tensor WideRows(const torch::Tensor& x);

/// [B, T, heads * width] -> [B, T, heads, width].
torch::Tensor AsHeads(const torch::Tensor& x, int64_t heads);

/// [count], biases whose softplus is a step drawn from [1e-3, 0.1], evenly in
/// its logarithm (Gu and Dao 2023, arXiv 2312.00752, section 3.6).
torch::Tensor DrawStepBias(int64_t count);

/// A short convolution's parameters, those of a submodule "convolution" of
/// `owner` with the first values of torch.nn.Conv1d.
struct ConvolutionFilters {
  ConvolutionFilters() = default;
  ConvolutionFilters(torch::nn::Module& owner, int64_t channels, int64_t width,
                     bool with_bias);

  torch::Tensor weight, bias;  // [C, W], [C] or undefined
};

/// activation(convolution(rows [B, T, C])), "silu" or "none". lengths [B],
/// undefined: all tokens.
/// `window`: the W - 1 rows before these, undefined: zeros; where defined it is
/// replaced by the last ones of those in use.
torch::Tensor Convolve(const ConvolutionFilters& filters,
                       const torch::Tensor& rows, const torch::Tensor& lengths,
                       torch::Tensor& window, const char* activation = "silu");

/// The `rows` [B, W - 1, C] in front of a piece of a sequence that is cut over
/// ranks, zeros before the sequence's first; called by every rank.
torch::Tensor WindowBefore(const torch::Tensor& rows, int64_t width,
                           const SequenceCut& cut);

}  // namespace tarn::nn
