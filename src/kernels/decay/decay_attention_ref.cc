#include "kernels/decay/decay_attention_ref.h"

#include <cmath>

namespace tarn::reference {

namespace {

// The states of one value head before the first token and after each.
std::vector<std::vector<double>> States(const DecayProblem& p, int64_t hv) {
  const int64_t K = p.d_key, V = p.d_value;
  std::vector<std::vector<double>> states(p.seq_len + 1,
                                          std::vector<double>(K * V, 0));
  for (int64_t i = 0; i < K * V && !p.S.empty(); ++i) {
    states[0][i] = p.S[hv * K * V + i];
  }
  for (int64_t t = 0; t < p.seq_len; ++t) {
    const double* key = &p.keys[(t * p.heads + p.Head(hv)) * K];
    const double* value = &p.values[(t * p.value_heads + hv) * V];
    for (int64_t k = 0; k < K; ++k) {
      for (int64_t v = 0; v < V; ++v) {
        states[t + 1][k * V + v] =
            p.Decay(t, hv, k) * states[t][k * V + v] + key[k] * value[v];
      }
    }
  }
  return states;
}

}  // namespace

DecayResult DecayForward(const DecayProblem& p) {
  const int64_t K = p.d_key, V = p.d_value;
  DecayResult result;
  result.out.assign(p.seq_len * p.value_heads * V, 0);
  for (int64_t hv = 0; hv < p.value_heads; ++hv) {
    const auto states = States(p, hv);
    for (int64_t t = 0; t < p.seq_len; ++t) {
      const int64_t row = (t * p.heads + p.Head(hv)) * K;
      double bonus = 0;
      for (int64_t k = 0; k < K && !p.bonus.empty(); ++k) {
        bonus += p.queries[row + k] * p.bonus[hv * K + k] * p.keys[row + k];
      }
      const auto& S = states[p.bonus.empty() ? t + 1 : t];
      for (int64_t v = 0; v < V; ++v) {
        const int64_t at = (t * p.value_heads + hv) * V + v;
        double sum = bonus * p.values[at];
        for (int64_t k = 0; k < K; ++k) {
          sum += p.queries[row + k] * S[k * V + v];
        }
        result.out[at] = p.scale * sum;
      }
    }
    result.S.insert(result.S.end(), states.back().begin(), states.back().end());
  }
  return result;
}

DecayGradients DecayBackward(const DecayProblem& p,
                             const std::vector<double>& grad_out,
                             const std::vector<double>& grad_S) {
  const int64_t K = p.d_key, V = p.d_value;
  const bool exclusive = !p.bonus.empty();
  DecayGradients g;
  g.queries.assign(p.queries.size(), 0);
  g.keys.assign(p.keys.size(), 0);
  g.values.assign(p.values.size(), 0);
  g.gates.assign(p.gates.size(), 0);
  g.bonus.assign(p.bonus.size(), 0);
  g.S.assign(p.value_heads * K * V, 0);
  for (int64_t hv = 0; hv < p.value_heads; ++hv) {
    const auto states = States(p, hv);
    std::vector<double> dS(K * V, 0);
    for (int64_t i = 0; i < K * V && !grad_S.empty(); ++i) {
      dS[i] = grad_S[hv * K * V + i];
    }
    for (int64_t t = p.seq_len - 1; t >= 0; --t) {
      const int64_t row = (t * p.heads + p.Head(hv)) * K;
      const int64_t at = (t * p.value_heads + hv) * V;
      const double* q = &p.queries[row];
      const double* key = &p.keys[row];
      double go_v = 0, q_u_k = 0;
      for (int64_t v = 0; v < V; ++v) {
        go_v += p.scale * grad_out[at + v] * p.values[at + v];
      }
      for (int64_t k = 0; k < K && exclusive; ++k) {
        const double u = p.bonus[hv * K + k];
        q_u_k += q[k] * u * key[k];
        g.queries[row + k] += go_v * u * key[k];
        g.keys[row + k] += go_v * u * q[k];
        g.bonus[hv * K + k] += go_v * q[k] * key[k];
      }
      // The read: of the state after the token, or of the one before it.
      const auto& S = states[exclusive ? t : t + 1];
      const auto read = [&] {
        for (int64_t k = 0; k < K; ++k) {
          for (int64_t v = 0; v < V; ++v) {
            const double go = p.scale * grad_out[at + v];
            g.queries[row + k] += go * S[k * V + v];
            dS[k * V + v] += q[k] * go;
          }
        }
      };
      for (int64_t v = 0; v < V; ++v) {
        g.values[at + v] += p.scale * q_u_k * grad_out[at + v];
      }
      if (!exclusive) read();
      for (int64_t k = 0; k < K; ++k) {
        double decay_gradient = 0;
        for (int64_t v = 0; v < V; ++v) {
          g.keys[row + k] += dS[k * V + v] * p.values[at + v];
          g.values[at + v] += dS[k * V + v] * key[k];
          decay_gradient += dS[k * V + v] * states[t][k * V + v];
          dS[k * V + v] *= p.Decay(t, hv, k);
        }
        decay_gradient *= p.Decay(t, hv, k);
        switch (p.gate_kind) {
          case DecayProblem::Gate::kNone:
            break;
          case DecayProblem::Gate::kHead:
            g.gates[hv] += decay_gradient;
            break;
          case DecayProblem::Gate::kToken:
            g.gates[t * p.value_heads + hv] += decay_gradient;
            break;
          case DecayProblem::Gate::kChannel:
            g.gates[(t * p.value_heads + hv) * K + k] += decay_gradient;
            break;
        }
      }
      if (exclusive) read();
    }
    for (int64_t i = 0; i < K * V; ++i) g.S[hv * K * V + i] = dS[i];
  }
  return g;
}

}  // namespace tarn::reference
