#include "kernels/bias_activation/bias_activation_ref.h"

#include <cmath>
#include <numbers>

namespace tarn::reference {
namespace {

double Phi(double u) { return 0.5 * std::erfc(-u / std::numbers::sqrt2); }

double Value(Nonlinearity activation, double u) {
  switch (activation) {
    case Nonlinearity::kIdentity:
      return u;
    case Nonlinearity::kRelu:
      return u > 0 ? u : 0;
    case Nonlinearity::kGelu:
      break;
  }
  return u * Phi(u);
}

double Slope(Nonlinearity activation, double u) {
  switch (activation) {
    case Nonlinearity::kIdentity:
      return 1;
    case Nonlinearity::kRelu:
      return u > 0 ? 1 : 0;
    case Nonlinearity::kGelu:
      break;
  }
  return Phi(u) + u * std::exp(-u * u / 2) / std::sqrt(2 * std::numbers::pi);
}

}  // namespace

std::vector<double> BiasActivation(Nonlinearity activation,
                                   const std::vector<double>& x,
                                   const std::vector<double>& bias,
                                   const std::vector<double>& factors) {
  std::vector<double> y;
  for (size_t i = 0; i < x.size(); ++i) {
    y.push_back(Value(activation, x[i] + bias[i % bias.size()]) * factors[i]);
  }
  return y;
}

BiasActivationGradient BiasActivationBackward(
    Nonlinearity activation, const std::vector<double>& x,
    const std::vector<double>& bias, const std::vector<double>& factors,
    const std::vector<double>& grad_y) {
  BiasActivationGradient g;
  g.bias.assign(bias.size(), 0.0);
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t column = i % bias.size();
    g.x.push_back(grad_y[i] * factors[i] *
                  Slope(activation, x[i] + bias[column]));
    g.bias[column] += g.x.back();
  }
  return g;
}

}  // namespace tarn::reference
