// A norm and the maps after it by their equations, row by row in double.
#pragma once

#include <cstddef>
#include <vector>

#include "core/norm_kind.h"

namespace tarn {

struct LayerHeadsNumbers {
  std::vector<double> x, gamma, beta;  // no gamma: no norm
  std::vector<std::vector<double>> weights, biases;
};

/// y [rows, sum of outputs]; x has rows of `width`.
std::vector<double> LayerHeadsRef(const LayerHeadsNumbers& in, size_t width,
                                  NormKind kind, double eps);

}  // namespace tarn
