// The oracle of token_shift.h: one entry at a time, in double, by definition.
#pragma once

#include <cstdint>
#include <vector>

namespace tarn::reference {

/// bounds: [sequences + 1]; x: [bounds.back(), width]; before: empty means
/// zeros; weight: empty without one.
struct TokenShiftProblem {
  int64_t width = 1;
  std::vector<int64_t> bounds;
  std::vector<double> x, before, weight;
};

std::vector<double> TokenShift(const TokenShiftProblem& p);

/// Gradients in the place of the inputs, `before` and `weight` where given.
TokenShiftProblem TokenShiftBackward(const TokenShiftProblem& p,
                                     const std::vector<double>& grad_y);

}  // namespace tarn::reference
