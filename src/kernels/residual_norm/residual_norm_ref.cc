#include "kernels/residual_norm/residual_norm_ref.h"

#include <cmath>

namespace tarn::reference {
namespace {

struct Moments {
  double mean = 0, inverse = 0;
};

// The mean that is subtracted, 0 in an RMS norm, and the root of the rest.
Moments MomentsOf(const ResidualNormProblem& p, const double* s) {
  const int64_t width = p.width;
  Moments m;
  if (p.kind == NormKind::kLayer) {
    for (int64_t i = 0; i < width; ++i) m.mean += s[i] / width;
  }
  double variance = 0;
  for (int64_t i = 0; i < width; ++i) {
    variance += (s[i] - m.mean) * (s[i] - m.mean) / width;
  }
  m.inverse = 1 / std::sqrt(variance + p.eps);
  return m;
}

}  // namespace

ResidualNormResult ResidualNorm(const ResidualNormProblem& p) {
  ResidualNormResult r;
  for (int64_t i = 0; i < p.rows * p.width; ++i) {
    const double bias = p.bias.empty() ? 0 : p.bias[i % p.width];
    const double residual = p.residual.empty() ? 0 : p.residual[i];
    r.s.push_back(residual + (p.x[i] + bias) * p.factors[i]);
  }
  if (p.gamma.empty()) return r;
  for (int64_t row = 0; row < p.rows; ++row) {
    const double* s = r.s.data() + row * p.width;
    const Moments m = MomentsOf(p, s);
    for (int64_t i = 0; i < p.width; ++i) {
      const double beta = p.beta.empty() ? 0 : p.beta[i];
      r.y.push_back((s[i] - m.mean) * m.inverse * p.gamma[i] + beta);
    }
  }
  return r;
}

// Through y_i = n_i gamma_i + beta_i, n = (s - mean) / sqrt(var + eps): the
// Jacobian of n by s is inverse * (delta_ij - 1 / D - n_i n_j / D) where the
// mean was subtracted, else without 1 / D.
ResidualNormGradient ResidualNormBackward(const ResidualNormProblem& p,
                                          const std::vector<double>& grad_y,
                                          const std::vector<double>& grad_s) {
  ResidualNormGradient g;
  const std::vector<double> s = ResidualNorm(p).s;
  g.residual = grad_s.empty() ? std::vector<double>(s.size(), 0.0) : grad_s;
  const double width = static_cast<double>(p.width);
  const double of_mean = p.kind == NormKind::kLayer ? 1 / width : 0;
  g.gamma.assign(p.width, 0.0);
  g.beta.assign(p.width, 0.0);
  g.bias.assign(p.width, 0.0);
  if (!p.gamma.empty() && !grad_y.empty()) {
    for (int64_t row = 0; row < p.rows; ++row) {
      const double* in = s.data() + row * p.width;
      const double* dy = grad_y.data() + row * p.width;
      const Moments m = MomentsOf(p, in);
      for (int64_t i = 0; i < p.width; ++i) {
        const double n_i = (in[i] - m.mean) * m.inverse;
        g.gamma[i] += dy[i] * n_i;
        g.beta[i] += dy[i];
        for (int64_t j = 0; j < p.width; ++j) {
          const double n_j = (in[j] - m.mean) * m.inverse;
          g.residual[row * p.width + i] +=
              dy[j] * p.gamma[j] * m.inverse *
              ((i == j ? 1.0 : 0.0) - of_mean - n_i * n_j / width);
        }
      }
    }
  }
  for (size_t i = 0; i < s.size(); ++i) {
    g.x.push_back(g.residual[i] * p.factors[i]);
    g.bias[i % p.width] += g.x.back();
  }
  return g;
}

}  // namespace tarn::reference
