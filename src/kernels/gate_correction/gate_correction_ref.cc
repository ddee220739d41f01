#include "kernels/gate_correction/gate_correction_ref.h"

#include <cstddef>

namespace tarn::reference {
namespace {

// sum r k w of the head at `begin`.
double Seen(const GateCorrectionProblem& p, size_t begin) {
  double sum = 0;
  for (int64_t i = 0; i < p.width; ++i) {
    const double w = p.weight[(begin + i) % p.weight.size()];
    sum += p.r[begin + i] * p.k[begin + i] * w;
  }
  return sum;
}

}  // namespace

std::vector<double> GateCorrection(const GateCorrectionProblem& p) {
  std::vector<double> out;
  for (size_t at = 0; at < p.o.size(); ++at) {
    const double seen = Seen(p, at - at % p.width);
    out.push_back((p.o[at] + seen * p.v[at]) * p.g[at]);
  }
  return out;
}

GateCorrectionProblem GateCorrectionBackward(
    const GateCorrectionProblem& p, const std::vector<double>& grad_out) {
  GateCorrectionProblem d = p;
  d.weight.assign(p.weight.size(), 0);
  for (size_t begin = 0; begin < p.o.size(); begin += p.width) {
    const double seen = Seen(p, begin);
    double by_seen = 0;
    for (size_t at = begin; at < begin + p.width; ++at) {
      by_seen += grad_out[at] * p.g[at] * p.v[at];
      d.o[at] = grad_out[at] * p.g[at];
      d.v[at] = seen * grad_out[at] * p.g[at];
      d.g[at] = grad_out[at] * (p.o[at] + seen * p.v[at]);
    }
    for (size_t at = begin; at < begin + p.width; ++at) {
      const size_t w = at % p.weight.size();
      d.r[at] = by_seen * p.k[at] * p.weight[w];
      d.k[at] = by_seen * p.r[at] * p.weight[w];
      d.weight[w] += by_seen * p.r[at] * p.k[at];
    }
  }
  return d;
}

}  // namespace tarn::reference
