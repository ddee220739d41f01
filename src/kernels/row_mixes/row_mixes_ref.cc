#include "kernels/row_mixes/row_mixes_ref.h"

#include <cstddef>

namespace tarn::reference {

std::vector<std::vector<double>> RowMixes(const RowMixProblem& p) {
  std::vector<std::vector<double>> outs;
  for (const std::vector<double>& weight : p.weights) {
    std::vector<double> out;
    for (size_t at = 0; at < p.x.size(); ++at) {
      out.push_back(p.x[at] + p.delta[at] * weight[at % weight.size()]);
    }
    outs.push_back(out);
  }
  return outs;
}

RowMixProblem RowMixesBackward(
    const RowMixProblem& p, const std::vector<std::vector<double>>& grad_outs) {
  RowMixProblem d;
  d.x.assign(p.x.size(), 0);
  d.delta.assign(p.x.size(), 0);
  for (size_t j = 0; j < p.weights.size(); ++j) {
    const size_t width = p.weights[j].size();
    d.weights.emplace_back(width, 0);
    for (size_t at = 0; at < p.x.size(); ++at) {
      const double g = grad_outs[j][at];
      d.x[at] += g;
      d.delta[at] += g * p.weights[j][at % width];
      d.weights[j][at % width] += g * p.delta[at];
    }
  }
  return d;
}

}  // namespace tarn::reference
