// The oracle of gated_norm.h: one row at a time, in double, by definition.
#pragma once

#include <cstdint>
#include <vector>

namespace tarn::reference {

/// Inputs, dense [tokens, groups, width]; empty vectors are absent. weight and
/// bias: [width] or [groups, width], told apart by their size.
struct GatedNormProblem {
  int64_t tokens = 0, groups = 1, width = 1;
  double eps = 1e-5;
  bool centred = false, silu = true, gate_first = false;
  std::vector<double> x, gate, weight, bias;
};

std::vector<double> GatedNorm(const GatedNormProblem& p);

struct GatedNormGradient {
  std::vector<double> x, gate, weight, bias;
};
GatedNormGradient GatedNormBackward(const GatedNormProblem& p,
                                    const std::vector<double>& grad_out);

}  // namespace tarn::reference
