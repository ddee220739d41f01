#include "kernels/short_convolution/short_convolution_ref.h"

#include <cmath>

namespace tarn::reference {

double ConvolutionProblem::Input(int64_t t, int64_t c) const {
  if (t >= 0) return inputs[t * channels + c];
  return state.empty() ? 0 : state[(t + width - 1) * channels + c];
}

namespace {

double Before(const ConvolutionProblem& p, int64_t t, int64_t c) {
  double z = p.bias.empty() ? 0 : p.bias[c];
  for (int64_t j = 0; j < p.width; ++j) {
    z += p.weights[c * p.width + j] * p.Input(t - p.width + 1 + j, c);
  }
  return z;
}

}  // namespace

ConvolutionResult ConvolutionForward(const ConvolutionProblem& p) {
  ConvolutionResult result;
  for (int64_t t = 0; t < p.seq_len; ++t) {
    for (int64_t c = 0; c < p.channels; ++c) {
      const double z = Before(p, t, c);
      result.out.push_back(p.silu ? z / (1 + std::exp(-z)) : z);
    }
  }
  for (int64_t r = 0; r + 1 < p.width; ++r) {
    for (int64_t c = 0; c < p.channels; ++c) {
      result.state.push_back(p.Input(p.seq_len - p.width + 1 + r, c));
    }
  }
  return result;
}

ConvolutionGradients ConvolutionBackward(
    const ConvolutionProblem& p, const std::vector<double>& grad_out,
    const std::vector<double>& grad_state) {
  ConvolutionGradients g;
  g.inputs.assign(p.seq_len * p.channels, 0);
  g.weights.assign(p.channels * p.width, 0);
  g.bias.assign(p.channels, 0);
  g.state.assign((p.width - 1) * p.channels, 0);
  const auto input = [&](int64_t t, int64_t c) -> double& {
    return t >= 0 ? g.inputs[t * p.channels + c]
                  : g.state[(t + p.width - 1) * p.channels + c];
  };
  for (int64_t c = 0; c < p.channels; ++c) {
    for (int64_t t = 0; t < p.seq_len; ++t) {
      const double z = Before(p, t, c), s = 1 / (1 + std::exp(-z));
      const double dz =
          grad_out[t * p.channels + c] * (p.silu ? s + z * s * (1 - s) : 1);
      g.bias[c] += dz;
      for (int64_t j = 0; j < p.width; ++j) {
        const int64_t from = t - p.width + 1 + j;
        g.weights[c * p.width + j] += dz * p.Input(from, c);
        input(from, c) += dz * p.weights[c * p.width + j];
      }
    }
    for (int64_t r = 0; r + 1 < p.width && !grad_state.empty(); ++r) {
      input(p.seq_len - p.width + 1 + r, c) += grad_state[r * p.channels + c];
    }
  }
  return g;
}

}  // namespace tarn::reference
