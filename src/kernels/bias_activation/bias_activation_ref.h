// The oracle of bias_activation.h: one element at a time, in double.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/bias_activation/bias_activation.h"

namespace tarn::reference {

/// y [rows, width] from x, bias [width] and the factors of dropout, all dense.
std::vector<double> BiasActivation(Nonlinearity activation,
                                   const std::vector<double>& x,
                                   const std::vector<double>& bias,
                                   const std::vector<double>& factors);

struct BiasActivationGradient {
  std::vector<double> x, bias;
};

BiasActivationGradient BiasActivationBackward(
    Nonlinearity activation, const std::vector<double>& x,
    const std::vector<double>& bias, const std::vector<double>& factors,
    const std::vector<double>& grad_y);

}  // namespace tarn::reference
