#include "kernels/head_scale/head_scale_ref.h"

#include <cstddef>

namespace tarn::reference {
namespace {

// The factor of an entry: a head's, or a row and head's.
size_t FactorOf(const HeadScaleProblem& p, size_t at) {
  return at / static_cast<size_t>(p.width) % p.factors.size();
}

}  // namespace

std::vector<double> HeadScale(const HeadScaleProblem& p) {
  std::vector<double> y;
  for (size_t at = 0; at < p.values.size(); ++at) {
    const double base = p.base.empty() ? 0 : p.base[at];
    y.push_back(base + p.factors[FactorOf(p, at)] * p.values[at]);
  }
  return y;
}

HeadScaleProblem HeadScaleBackward(const HeadScaleProblem& p,
                                   const std::vector<double>& grad_y) {
  HeadScaleProblem d = p;
  d.factors.assign(p.factors.size(), 0);
  for (size_t at = 0; at < p.values.size(); ++at) {
    const size_t factor = FactorOf(p, at);
    d.values[at] = p.factors[factor] * grad_y[at];
    d.factors[factor] += p.values[at] * grad_y[at];
    if (!p.base.empty()) d.base[at] = grad_y[at];
  }
  return d;
}

}  // namespace tarn::reference
