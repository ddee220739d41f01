#include "kernels/swiglu/swiglu_ref.h"

#include <cmath>

namespace tarn::reference {
namespace {

double Sigma(double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace

std::vector<double> Swiglu(const std::vector<double>& gate,
                           const std::vector<double>& up,
                           const std::vector<double>& factors) {
  std::vector<double> y;
  for (size_t i = 0; i < gate.size(); ++i) {
    y.push_back(gate[i] * Sigma(gate[i]) * up[i] * factors[i]);
  }
  return y;
}

// (g sigma(g))' = sigma(g) + g sigma'(g), sigma' = sigma (1 - sigma).
SwigluGradient SwigluBackward(const std::vector<double>& gate,
                              const std::vector<double>& up,
                              const std::vector<double>& factors,
                              const std::vector<double>& grad_y) {
  SwigluGradient g;
  for (size_t i = 0; i < gate.size(); ++i) {
    const double sigma = Sigma(gate[i]);
    const double slope = sigma + gate[i] * sigma * (1 - sigma);
    g.gate.push_back(grad_y[i] * factors[i] * up[i] * slope);
    g.up.push_back(grad_y[i] * factors[i] * gate[i] * sigma);
  }
  return g;
}

}  // namespace tarn::reference
