#include "kernels/layer_rest/layer_rest_ref.h"

#include <cmath>

namespace tarn {
namespace {

using Row = std::vector<double>;

// Row `m` of a matrix with rows of `width`.
Row RowOf(const std::vector<double>& x, int64_t m, int64_t width) {
  return Row(x.begin() + m * width, x.begin() + (m + 1) * width);
}

Row Affine(const Row& x, const std::vector<double>& weight,
           const std::vector<double>& bias, int64_t outputs) {
  Row y;
  for (int64_t n = 0; n < outputs; ++n) {
    double sum = bias.empty() ? 0.0 : bias[static_cast<size_t>(n)];
    for (size_t k = 0; k < x.size(); ++k) {
      sum += x[k] * weight[static_cast<size_t>(n) * x.size() + k];
    }
    y.push_back(sum);
  }
  return y;
}

Row Norm(const Row& s, NormKind kind, double eps, const Row& gamma,
         const Row& beta) {
  const double count = static_cast<double>(s.size());
  double mean = 0, square = 0;
  if (kind == NormKind::kLayer) {
    for (const double v : s) mean += v / count;
  }
  for (const double v : s) square += (v - mean) * (v - mean) / count;
  Row y;
  for (size_t i = 0; i < s.size(); ++i) {
    y.push_back((s[i] - mean) / std::sqrt(square + eps) * gamma[i] +
                (beta.empty() ? 0.0 : beta[i]));
  }
  return y;
}

double Act(Nonlinearity activation, double u) {
  if (activation == Nonlinearity::kRelu) return u > 0 ? u : 0;
  return 0.5 * u * (1 + std::erf(u / std::sqrt(2.0)));
}

// The factors of one site, [rows, width].
std::vector<float> Factors(const DropoutOptions& dropout, int64_t rows,
                           int64_t width) {
  std::vector<float> scales(static_cast<size_t>(rows * width));
  SerialExecutor serial;
  DropoutScales(dropout, rows, width, scales.data(), serial);
  return scales;
}

}  // namespace

std::vector<double> LayerRestRef(const LayerRestOptions& options,
                                 const LayerRestShape& shape,
                                 const LayerRestNumbers& in) {
  const auto [rows, width, mixed, hidden] = shape;
  const std::vector<float> d1 = Factors(options.mixed_dropout, rows, width);
  const std::vector<float> d2 = Factors(options.hidden_dropout, rows, hidden);
  const std::vector<float> d3 = Factors(options.branch_dropout, rows, width);
  std::vector<double> result;
  for (int64_t m = 0; m < rows; ++m) {
    const size_t at = static_cast<size_t>(m * width);
    Row s =
        Affine(RowOf(in.mixed, m, mixed), in.out_weight, in.out_bias, width);
    for (size_t i = 0; i < s.size(); ++i) {
      s[i] = in.x[at + i] + s[i] * d1[at + i];
    }
    const Row n = Norm(s, options.norm_kind, options.eps, in.gamma, in.beta);
    Row h = Affine(n, in.weight1, in.bias1, hidden);
    for (size_t i = 0; i < h.size(); ++i) {
      h[i] = Act(options.activation, h[i]) *
             d2[static_cast<size_t>(m * hidden) + i];
    }
    Row y = Affine(h, in.weight2, in.bias2, width);
    const Row& base = in.end_gamma.empty() ? s : n;
    for (size_t i = 0; i < y.size(); ++i) y[i] = base[i] + y[i] * d3[at + i];
    if (!in.end_gamma.empty()) {
      y = Norm(y, options.norm_kind, options.eps, in.end_gamma, in.end_beta);
    }
    result.insert(result.end(), y.begin(), y.end());
  }
  return result;
}

}  // namespace tarn
