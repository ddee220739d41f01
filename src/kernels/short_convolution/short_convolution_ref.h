// Scalar double reference of short_convolution, by definition; shares nothing
// with the kernel. For tests and benchmarks' checks only.
#pragma once

#include <cstdint>
#include <vector>

namespace tarn::reference {

/// One sequence, dense. An empty state means zeros, an empty bias none.
struct ConvolutionProblem {
  int64_t seq_len = 0, channels = 1, width = 4;
  bool silu = true;
  std::vector<double> inputs;         // [T, D]
  std::vector<double> weights, bias;  // [D, W], [D]
  std::vector<double> state;          // [W - 1, D]

  /// x of token t, which may be before the first.
  double Input(int64_t t, int64_t c) const;
};

struct ConvolutionResult {
  std::vector<double> out, state;  // [T, D], [W - 1, D]
};

struct ConvolutionGradients {
  std::vector<double> inputs, weights, bias, state;
};

ConvolutionResult ConvolutionForward(const ConvolutionProblem& problem);

ConvolutionGradients ConvolutionBackward(const ConvolutionProblem& problem,
                                         const std::vector<double>& grad_out,
                                         const std::vector<double>& grad_state);

}  // namespace tarn::reference
