#include "kernels/elementwise_recurrence/elementwise_recurrence_ref.h"

#include <cmath>

namespace tarn::reference {

ElementwiseResult ElementwiseForward(const ElementwiseProblem& p) {
  ElementwiseResult result;
  result.state = p.state;
  result.state.resize(p.channels, 0.0);
  for (int64_t t = 0; t < p.seq_len; ++t) {
    for (int64_t c = 0; c < p.channels; ++c) {
      const int64_t i = t * p.channels + c;
      result.state[c] = std::exp(p.gates[i]) * result.state[c] + p.inputs[i];
      result.out.push_back(result.state[c]);
    }
  }
  return result;
}

ElementwiseGradients ElementwiseBackward(
    const ElementwiseProblem& p, const std::vector<double>& grad_out,
    const std::vector<double>& grad_state) {
  const std::vector<double> out = ElementwiseForward(p).out;
  ElementwiseGradients g;
  g.inputs.assign(p.seq_len * p.channels, 0);
  g.gates = g.inputs;
  g.state = grad_state;
  g.state.resize(p.channels, 0.0);
  for (int64_t t = p.seq_len - 1; t >= 0; --t) {
    for (int64_t c = 0; c < p.channels; ++c) {
      const int64_t i = t * p.channels + c;
      const double initial = p.state.empty() ? 0.0 : p.state[c];
      const double before = t == 0 ? initial : out[i - p.channels];
      g.inputs[i] = g.state[c] + grad_out[i];
      g.state[c] = std::exp(p.gates[i]) * g.inputs[i];
      g.gates[i] = g.state[c] * before;
    }
  }
  return g;
}

}  // namespace tarn::reference
