// The oracle of residual_norm.h: one row at a time, in double, by definition.
#pragma once

#include <cstdint>
#include <vector>

#include "core/norm_kind.h"

namespace tarn::reference {

/// Inputs, dense; empty vectors are absent. factors: those of dropout.
struct ResidualNormProblem {
  int64_t rows = 0, width = 0;
  double eps = 1e-5;
  NormKind kind = NormKind::kLayer;
  std::vector<double> residual, x, bias, gamma, beta, factors;
};

struct ResidualNormResult {
  std::vector<double> s, y;  // [rows, width]; y empty without gamma
};
ResidualNormResult ResidualNorm(const ResidualNormProblem& p);

struct ResidualNormGradient {
  std::vector<double> residual, x, bias, gamma, beta;
};
/// grad_y, grad_s: empty means zeros.
ResidualNormGradient ResidualNormBackward(const ResidualNormProblem& p,
                                          const std::vector<double>& grad_y,
                                          const std::vector<double>& grad_s);

}  // namespace tarn::reference
