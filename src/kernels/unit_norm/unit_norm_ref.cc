#include "kernels/unit_norm/unit_norm_ref.h"

#include <cmath>
#include <cstddef>

namespace tarn::reference {

std::vector<double> UnitNorm(const std::vector<double>& x, int64_t width,
                             double eps) {
  std::vector<double> y;
  for (size_t at = 0; at < x.size(); ++at) {
    const size_t begin = at - at % width;
    double squares = eps;
    for (size_t i = begin; i < begin + width; ++i) squares += x[i] * x[i];
    y.push_back(x[at] / std::sqrt(squares));
  }
  return y;
}

std::vector<double> UnitNormBackward(const std::vector<double>& x,
                                     const std::vector<double>& grad_y,
                                     int64_t width, double eps) {
  std::vector<double> grad_x;
  for (size_t at = 0; at < x.size(); ++at) {
    const size_t begin = at - at % width;
    double squares = eps, products = 0;
    for (size_t i = begin; i < begin + width; ++i) {
      squares += x[i] * x[i];
      products += x[i] * grad_y[i];
    }
    const double length = std::sqrt(squares);
    grad_x.push_back(grad_y[at] / length -
                     products * x[at] / (length * length * length));
  }
  return grad_x;
}

}  // namespace tarn::reference
