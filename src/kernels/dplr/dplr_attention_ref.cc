#include "kernels/dplr/dplr_attention_ref.h"

#include <cstdint>

namespace tarn::reference {
namespace {

// One head token by token.
struct Step {
  std::vector<double> before;  // S_{t-1} [K, V]
  std::vector<double> read;    // e_t = S_{t-1}^T c_t [V]
  std::vector<double> after;   // S_t [K, V]
};

std::vector<Step> Steps(const DplrProblem& problem, int64_t h) {
  const DecayProblem& p = problem.inputs;
  const int64_t K = p.d_key, V = p.d_value;
  std::vector<double> S(K * V, 0);
  for (int64_t i = 0; i < K * V && !p.S.empty(); ++i) S[i] = p.S[h * K * V + i];
  std::vector<Step> steps(p.seq_len);
  for (int64_t t = 0; t < p.seq_len; ++t) {
    const int64_t row = (t * p.heads + h) * K, at = (t * p.heads + h) * V;
    Step& step = steps[t];
    step.before = S;
    step.read.assign(V, 0);
    for (int64_t k = 0; k < K; ++k) {
      for (int64_t v = 0; v < V; ++v) {
        step.read[v] += S[k * V + v] * problem.reads[row + k];
      }
    }
    for (int64_t k = 0; k < K; ++k) {
      for (int64_t v = 0; v < V; ++v) {
        S[k * V + v] = p.Decay(t, h, k) * S[k * V + v] +
                       problem.writes[row + k] * step.read[v] +
                       p.keys[row + k] * p.values[at + v];
      }
    }
    step.after = S;
  }
  return steps;
}

}  // namespace

DecayResult DplrForward(const DplrProblem& problem) {
  const DecayProblem& p = problem.inputs;
  const int64_t K = p.d_key, V = p.d_value;
  DecayResult result;
  result.out.assign(p.seq_len * p.heads * V, 0);
  result.S.assign(p.heads * K * V, 0);
  for (int64_t h = 0; h < p.heads; ++h) {
    const std::vector<Step> steps = Steps(problem, h);
    for (int64_t t = 0; t < p.seq_len; ++t) {
      for (int64_t k = 0; k < K; ++k) {
        const double query = p.scale * p.queries[(t * p.heads + h) * K + k];
        for (int64_t v = 0; v < V; ++v) {
          result.out[(t * p.heads + h) * V + v] +=
              query * steps[t].after[k * V + v];
        }
      }
    }
    for (int64_t i = 0; i < K * V; ++i) {
      const double initial = p.S.empty() ? 0 : p.S[h * K * V + i];
      result.S[h * K * V + i] = steps.empty() ? initial : steps.back().after[i];
    }
  }
  return result;
}

DplrGradients DplrBackward(const DplrProblem& problem,
                           const std::vector<double>& grad_out,
                           const std::vector<double>& grad_S) {
  const DecayProblem& p = problem.inputs;
  const int64_t K = p.d_key, V = p.d_value;
  DplrGradients g;
  g.queries.assign(p.queries.size(), 0);
  g.keys.assign(p.keys.size(), 0);
  g.values.assign(p.values.size(), 0);
  g.gates.assign(p.gates.size(), 0);
  g.reads.assign(problem.reads.size(), 0);
  g.writes.assign(problem.writes.size(), 0);
  g.S.assign(p.heads * K * V, 0);
  for (int64_t h = 0; h < p.heads; ++h) {
    const std::vector<Step> steps = Steps(problem, h);
    std::vector<double> dS(K * V, 0);
    for (int64_t i = 0; i < K * V && !grad_S.empty(); ++i) {
      dS[i] = grad_S[h * K * V + i];
    }
    for (int64_t t = p.seq_len - 1; t >= 0; --t) {
      const Step& step = steps[t];
      const int64_t row = (t * p.heads + h) * K, at = (t * p.heads + h) * V;
      for (int64_t k = 0; k < K; ++k) {
        for (int64_t v = 0; v < V; ++v) {
          const double go = p.scale * grad_out[at + v];
          g.queries[row + k] += go * step.after[k * V + v];
          dS[k * V + v] += p.queries[row + k] * go;
        }
      }
      std::vector<double> d_read(V, 0);
      for (int64_t k = 0; k < K; ++k) {
        for (int64_t v = 0; v < V; ++v) {
          const double d = dS[k * V + v];
          g.keys[row + k] += d * p.values[at + v];
          g.values[at + v] += d * p.keys[row + k];
          g.writes[row + k] += d * step.read[v];
          d_read[v] += d * problem.writes[row + k];
        }
      }
      for (int64_t k = 0; k < K; ++k) {
        double decay_gradient = 0;
        for (int64_t v = 0; v < V; ++v) {
          const double before = step.before[k * V + v];
          g.reads[row + k] += d_read[v] * before;
          decay_gradient += dS[k * V + v] * before;
          dS[k * V + v] = dS[k * V + v] * p.Decay(t, h, k) +
                          d_read[v] * problem.reads[row + k];
        }
        decay_gradient *= p.Decay(t, h, k);
        if (p.gate_kind == DecayProblem::Gate::kHead) {
          g.gates[h] += decay_gradient;
        } else if (p.gate_kind == DecayProblem::Gate::kToken) {
          g.gates[t * p.heads + h] += decay_gradient;
        } else if (p.gate_kind == DecayProblem::Gate::kChannel) {
          g.gates[(t * p.heads + h) * K + k] += decay_gradient;
        }
      }
    }
    for (int64_t i = 0; i < K * V; ++i) g.S[h * K * V + i] = dS[i];
  }
  return g;
}

}  // namespace tarn::reference
