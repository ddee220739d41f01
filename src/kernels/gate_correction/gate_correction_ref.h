// The oracle of gate_correction.h: one head at a time, in double.
#pragma once

#include <cstdint>
#include <vector>

namespace tarn::reference {

/// Dense [tokens, heads, width], weight [heads, width].
struct GateCorrectionProblem {
  int64_t heads = 1, width = 1;
  std::vector<double> o, r, k, v, g, weight;
};

std::vector<double> GateCorrection(const GateCorrectionProblem& p);

/// Gradients in the place of the inputs.
GateCorrectionProblem GateCorrectionBackward(
    const GateCorrectionProblem& p, const std::vector<double>& grad_out);

}  // namespace tarn::reference
