#include "kernels/selective_scan/selective_scan_ref.h"

#include <cmath>

namespace tarn::reference {

ScanResult ScanForward(const ScanProblem& p) {
  ScanResult result;
  result.state = p.state;
  result.state.resize(p.channels * p.states, 0.0);
  for (int64_t t = 0; t < p.seq_len; ++t) {
    for (int64_t d = 0; d < p.channels; ++d) {
      const double step = p.steps[t * p.channels + d];
      const double x = p.inputs[t * p.channels + d];
      double y = p.skip.empty() ? 0 : p.skip[d] * x;
      for (int64_t n = 0; n < p.states; ++n) {
        double& h = result.state[d * p.states + n];
        h = std::exp(step * p.rates[d * p.states + n]) * h +
            step * p.keys[t * p.states + n] * x;
        y += p.queries[t * p.states + n] * h;
      }
      result.out.push_back(y);
    }
  }
  return result;
}

ScanGradients ScanBackward(const ScanProblem& p,
                           const std::vector<double>& grad_out,
                           const std::vector<double>& grad_state) {
  // All states, from the one before the first token on.
  const int64_t size = p.channels * p.states;
  std::vector<double> states = p.state;
  states.resize(size, 0.0);
  for (int64_t t = 0; t < p.seq_len; ++t) {
    ScanProblem token = p;
    token.seq_len = 1;
    const auto row = [t](const std::vector<double>& x, int64_t width) {
      return std::vector<double>(x.begin() + t * width,
                                 x.begin() + (t + 1) * width);
    };
    token.inputs = row(p.inputs, p.channels);
    token.steps = row(p.steps, p.channels);
    token.keys = row(p.keys, p.states);
    token.queries = row(p.queries, p.states);
    token.state.assign(states.end() - size, states.end());
    const std::vector<double> next = ScanForward(token).state;
    states.insert(states.end(), next.begin(), next.end());
  }
  ScanGradients g;
  g.inputs.assign(p.inputs.size(), 0);
  g.steps = g.inputs;
  g.rates.assign(size, 0);
  g.keys.assign(p.keys.size(), 0);
  g.queries = g.keys;
  g.skip.assign(p.channels, 0);
  g.state = grad_state;
  g.state.resize(size, 0.0);
  for (int64_t t = p.seq_len - 1; t >= 0; --t) {
    for (int64_t d = 0; d < p.channels; ++d) {
      const int64_t i = t * p.channels + d;
      const double step = p.steps[i], x = p.inputs[i], dy = grad_out[i];
      g.skip[d] += dy * x;
      if (!p.skip.empty()) g.inputs[i] += p.skip[d] * dy;
      for (int64_t n = 0; n < p.states; ++n) {
        const int64_t s = d * p.states + n, k = t * p.states + n;
        const double factor = std::exp(step * p.rates[s]);
        const double before = states[t * size + s];
        const double dh = g.state[s] + p.queries[k] * dy;
        g.queries[k] += dy * states[(t + 1) * size + s];
        g.keys[k] += dh * step * x;
        g.inputs[i] += dh * step * p.keys[k];
        g.steps[i] += dh * (p.keys[k] * x + p.rates[s] * factor * before);
        g.rates[s] += dh * step * factor * before;
        g.state[s] = dh * factor;
      }
    }
  }
  return g;
}

}  // namespace tarn::reference
