#include "kernels/entry_forms/entry_forms_ref.h"

#include <cmath>

namespace tarn::reference {
namespace {

double Sigma(double x) { return 1 / (1 + std::exp(-x)); }

struct Entry {
  double value, by_x, by_y, by_weight;
};

Entry EntryOf(const EntryFormProblem& p, double x, double y, double w) {
  const double s = Sigma(x), slope = s * Sigma(-x);
  switch (p.form) {
    case EntryForm::kSiluGate:
      return {x * s * y, (s + x * slope) * y, x * s, 0};
    case EntryForm::kSigmoidGate:
      return {s * y, slope * y, s, 0};
    case EntryForm::kPowerGate: {
      if (x <= 0) return {x * s * y, (s + x * slope) * y, x * s, 0};
      const double q = std::sqrt(x) + 1, u = std::pow(x, p.scale / q);
      const double by_x =
          u * p.scale *
          (1 / (q * x) - std::log(x) / (2 * std::sqrt(x) * q * q));
      return {u * s * y, (by_x * s + u * slope) * y, u * s, 0};
    }
    case EntryForm::kElu1:
      return x > 0 ? Entry{x + 1, 1, 0, 0}
                   : Entry{std::exp(x), std::exp(x), 0, 0};
    case EntryForm::kSigmoid:
      return {s, slope, 0, 0};
    case EntryForm::kLogSigmoid:
      return {-p.scale * std::log1p(std::exp(-x)), p.scale * Sigma(-x), 0, 0};
    case EntryForm::kMixedGate:
      return {x * (1 + (y - 1) * w), 1 + (y - 1) * w, x * w, x * (y - 1)};
    case EntryForm::kGelu: {
      const double u = x + w, c = std::sqrt(2 / std::acos(-1.0));
      const double t = std::tanh(c * (u + 0.044715 * u * u * u));
      const double by_u =
          (1 + t) / 2 + u / 2 * (1 - t * t) * c * (1 + 3 * 0.044715 * u * u);
      return {u / 2 * (1 + t), by_u, 0, by_u};
    }
    case EntryForm::kSquareRelu:
      return x > 0 ? Entry{x * x, 2 * x, 0, 0} : Entry{0, 0, 0, 0};
  }
  return {};
}

Entry EntryAt(const EntryFormProblem& p, size_t i) {
  const double w = p.weight.empty() ? 0 : p.weight[i % p.weight.size()];
  return EntryOf(p, p.x[i], p.y.empty() ? 0 : p.y[i], w);
}

}  // namespace

std::vector<double> EntryForms(const EntryFormProblem& p) {
  std::vector<double> out;
  for (size_t i = 0; i < p.x.size(); ++i) out.push_back(EntryAt(p, i).value);
  return out;
}

EntryFormGradient EntryFormsBackward(const EntryFormProblem& p,
                                     const std::vector<double>& grad_out) {
  EntryFormGradient g;
  g.weight.assign(p.weight.size(), 0);
  for (size_t i = 0; i < p.x.size(); ++i) {
    const Entry entry = EntryAt(p, i);
    g.x.push_back(grad_out[i] * entry.by_x);
    if (!p.y.empty()) g.y.push_back(grad_out[i] * entry.by_y);
    if (p.weight.empty()) continue;
    g.weight[i % p.weight.size()] += grad_out[i] * entry.by_weight;
  }
  return g;
}

}  // namespace tarn::reference
