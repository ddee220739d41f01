#include "kernels/rg_lru/rg_lru_ref.h"

#include <cmath>
#include <limits>

namespace tarn::reference {
namespace {

double LruSigma(double x) { return 1 / (1 + std::exp(-x)); }
double LruSoftplus(double x) {
  return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
}

}  // namespace

RgLruResult RgLruGates(const RgLruProblem& p) {
  RgLruResult out;
  for (size_t n = 0; n < p.x.size(); ++n) {
    const size_t c = n % p.Lambda.size(), row = n / p.Lambda.size();
    if (!p.kept.empty() && !p.kept[row]) {
      out.inputs.push_back(0);
      out.gates.push_back(0);
      continue;
    }
    const double i = LruSigma(p.p_i[n] + p.b_i[c]);
    const double r = LruSigma(p.p_r[n] + p.b_r[c]);
    const double g = -8 * LruSoftplus(p.Lambda[c]) * r;
    const bool begins = !p.begins.empty() && p.begins[row];
    out.gates.push_back(begins ? -std::numeric_limits<double>::infinity() : g);
    out.inputs.push_back((begins ? 1 : std::sqrt(-std::expm1(2 * g))) * i *
                         p.x[n]);
  }
  return out;
}

RgLruProblem RgLruGatesBackward(const RgLruProblem& p,
                                const std::vector<double>& grad_inputs,
                                const std::vector<double>& grad_gates) {
  RgLruProblem d = p;
  d.Lambda.assign(p.Lambda.size(), 0);
  d.b_i.assign(p.b_i.size(), 0);
  d.b_r.assign(p.b_r.size(), 0);
  for (size_t n = 0; n < p.x.size(); ++n) {
    const size_t c = n % p.Lambda.size(), row = n / p.Lambda.size();
    d.x[n] = d.p_i[n] = d.p_r[n] = 0;
    if (!p.kept.empty() && !p.kept[row]) continue;
    const double i = LruSigma(p.p_i[n] + p.b_i[c]);
    const double r = LruSigma(p.p_r[n] + p.b_r[c]);
    const double soft = LruSoftplus(p.Lambda[c]), g = -8 * soft * r;
    const bool begins = !p.begins.empty() && p.begins[row];
    const double s = begins ? 1 : std::sqrt(-std::expm1(2 * g));
    d.x[n] = grad_inputs[n] * s * i;
    d.p_i[n] = grad_inputs[n] * s * p.x[n] * i * (1 - i);
    d.b_i[c] += d.p_i[n];
    if (begins) continue;
    const double by_g = grad_gates[n] - grad_inputs[n] * i * p.x[n] *
                                            std::exp(2 * g) *
                                            std::fmin(1 / s, 2 * p.most_slope);
    d.p_r[n] = by_g * -8 * soft * r * (1 - r);
    d.b_r[c] += d.p_r[n];
    d.Lambda[c] += by_g * -8 * r * LruSigma(p.Lambda[c]);
  }
  return d;
}

}  // namespace tarn::reference
