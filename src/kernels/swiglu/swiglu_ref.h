// The oracle of swiglu.h: one element at a time, in double.
#pragma once

#include <vector>

namespace tarn::reference {

/// y from gate, up and the factors of dropout, all of one size.
std::vector<double> Swiglu(const std::vector<double>& gate,
                           const std::vector<double>& up,
                           const std::vector<double>& factors);

struct SwigluGradient {
  std::vector<double> gate, up;
};

SwigluGradient SwigluBackward(const std::vector<double>& gate,
                              const std::vector<double>& up,
                              const std::vector<double>& factors,
                              const std::vector<double>& grad_y);

}  // namespace tarn::reference
