#include "kernels/gated_norm/gated_norm_ref.h"

#include <cmath>

namespace tarn::reference {
namespace {

double Logistic(double z) { return 1 / (1 + std::exp(-z)); }

double Gate(const GatedNormProblem& p, double z) {
  return p.silu ? z * Logistic(z) : Logistic(z);
}

double GateSlope(const GatedNormProblem& p, double z) {
  const double s = Logistic(z);
  return p.silu ? s + z * s * (1 - s) : s * (1 - s);
}

// What is normed, its normal form and 1 / root, of the row at `begin`.
struct Normed {
  std::vector<double> u, n;
  double inverse;
};

Normed NormRow(const GatedNormProblem& p, int64_t begin) {
  Normed row;
  double mean = 0, square = 0;
  for (int64_t i = 0; i < p.width; ++i) {
    const bool first = p.gate_first && !p.gate.empty();
    row.u.push_back(p.x[begin + i] * (first ? Gate(p, p.gate[begin + i]) : 1));
    mean += p.centred ? row.u.back() / p.width : 0;
  }
  for (double v : row.u) square += (v - mean) * (v - mean) / p.width;
  row.inverse = 1 / std::sqrt(square + p.eps);
  for (double v : row.u) row.n.push_back((v - mean) * row.inverse);
  return row;
}

// Place of an entry's weight.
size_t WeightOf(const GatedNormProblem& p, int64_t entry) {
  return static_cast<size_t>(entry) % p.weight.size();
}

}  // namespace

std::vector<double> GatedNorm(const GatedNormProblem& p) {
  std::vector<double> out;
  for (int64_t row = 0; row < p.tokens * p.groups; ++row) {
    const Normed normed = NormRow(p, row * p.width);
    for (int64_t i = 0; i < p.width; ++i) {
      const int64_t at = row * p.width + i;
      const size_t w = WeightOf(p, at);
      double y = normed.n[i] * p.weight[w];
      if (!p.bias.empty()) y += p.bias[w];
      if (!p.gate.empty() && !p.gate_first) y *= Gate(p, p.gate[at]);
      out.push_back(y);
    }
  }
  return out;
}

// The Jacobian of n by u is (delta_ij - n_i n_j / W) / root, centred also less
// 1 / W inside.
GatedNormGradient GatedNormBackward(const GatedNormProblem& p,
                                    const std::vector<double>& grad_out) {
  GatedNormGradient grad;
  grad.x.assign(p.x.size(), 0);
  grad.gate.assign(p.gate.size(), 0);
  grad.weight.assign(p.weight.size(), 0);
  grad.bias.assign(p.bias.size(), 0);
  const double count = static_cast<double>(p.width);
  for (int64_t row = 0; row < p.tokens * p.groups; ++row) {
    const int64_t begin = row * p.width;
    const Normed r = NormRow(p, begin);
    std::vector<double> dy(p.width), du(p.width);
    for (int64_t i = 0; i < p.width; ++i) {
      const int64_t at = begin + i;
      const size_t w = WeightOf(p, at);
      dy[i] = grad_out[at];
      if (!p.gate.empty() && !p.gate_first) {
        const double bias = p.bias.empty() ? 0 : p.bias[w];
        grad.gate[at] = grad_out[at] * (r.n[i] * p.weight[w] + bias) *
                        GateSlope(p, p.gate[at]);
        dy[i] *= Gate(p, p.gate[at]);
      }
      grad.weight[w] += dy[i] * r.n[i];
      if (!p.bias.empty()) grad.bias[w] += dy[i];
    }
    for (int64_t i = 0; i < p.width; ++i) {
      for (int64_t j = 0; j < p.width; ++j) {
        const double same = i == j ? 1 : 0, mean = p.centred ? 1 / count : 0;
        du[i] += dy[j] * p.weight[WeightOf(p, begin + j)] * r.inverse *
                 (same - mean - r.n[i] * r.n[j] / count);
      }
      const int64_t at = begin + i;
      grad.x[at] = du[i];
      if (!p.gate.empty() && p.gate_first) {
        grad.x[at] = du[i] * Gate(p, p.gate[at]);
        grad.gate[at] = du[i] * p.x[at] * GateSlope(p, p.gate[at]);
      }
    }
  }
  return grad;
}

}  // namespace tarn::reference
