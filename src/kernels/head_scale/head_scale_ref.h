// The oracle of head_scale.h: one entry at a time, in double, by definition.
#pragma once

#include <cstdint>
#include <vector>

namespace tarn::reference {

/// values: [rows, heads, width]; factors: [heads], or [rows, heads]; base: as
/// values, empty without one.
struct HeadScaleProblem {
  int64_t heads = 1, width = 1;
  std::vector<double> values, factors, base;
};

std::vector<double> HeadScale(const HeadScaleProblem& p);

/// Gradients in the place of the inputs.
HeadScaleProblem HeadScaleBackward(const HeadScaleProblem& p,
                                   const std::vector<double>& grad_y);

}  // namespace tarn::reference
