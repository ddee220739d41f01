// The rest of a layer by its equations, row by row in double.
#pragma once

#include <vector>

#include "kernels/layer_rest/layer_rest.h"

namespace tarn {

/// One vector per tensor, in double, dense; the names of LayerRestWeights.
struct LayerRestNumbers {
  std::vector<double> x, mixed;
  std::vector<double> out_weight, out_bias, gamma, beta, weight1, bias1,
      weight2, bias2, end_gamma, end_beta;
};

/// y [rows, D]. Empty biases are zeros; an empty end_gamma is pre-norm.
std::vector<double> LayerRestRef(const LayerRestOptions& options,
                                 const LayerRestShape& shape,
                                 const LayerRestNumbers& in);

}  // namespace tarn
