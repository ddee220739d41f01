#include "kernels/delta/delta_attention_ref.h"

#include <cstdint>

namespace tarn::reference {
namespace {

// One value head token by token: W_t and what is predicted and written.
struct Token {
  std::vector<double> before;  // S_{t-1} [K, V]
  std::vector<double> W;       // [K, V]
  std::vector<double> error;   // v_t - W^T k_t [V]
  std::vector<double> after;   // S_t [K, V]
};

std::vector<Token> Tokens(const DeltaProblem& problem, int64_t hv) {
  const DecayProblem& p = problem.inputs;
  const int64_t K = p.d_key, V = p.d_value;
  std::vector<double> S(K * V, 0);
  for (int64_t i = 0; i < K * V && !p.S.empty(); ++i) {
    S[i] = p.S[hv * K * V + i];
  }
  std::vector<Token> tokens(p.seq_len);
  for (int64_t t = 0; t < p.seq_len; ++t) {
    Token& token = tokens[t];
    const double* key = &p.keys[(t * p.heads + p.Head(hv)) * K];
    const double* value = &p.values[(t * p.value_heads + hv) * V];
    token.before = S;
    for (int64_t k = 0; k < K; ++k) {
      for (int64_t v = 0; v < V; ++v) S[k * V + v] *= p.Decay(t, hv, k);
    }
    token.W = S;
    for (int64_t v = 0; v < V; ++v) {
      double predicted = 0;
      for (int64_t k = 0; k < K; ++k) predicted += S[k * V + v] * key[k];
      token.error.push_back(value[v] - predicted);
    }
    const double beta = problem.betas[t * p.value_heads + hv];
    for (int64_t k = 0; k < K; ++k) {
      for (int64_t v = 0; v < V; ++v) {
        S[k * V + v] += key[k] * beta * token.error[v];
      }
    }
    token.after = S;
  }
  return tokens;
}

}  // namespace

DecayResult DeltaForward(const DeltaProblem& problem) {
  const DecayProblem& p = problem.inputs;
  const int64_t K = p.d_key, V = p.d_value;
  DecayResult result;
  result.out.assign(p.seq_len * p.value_heads * V, 0);
  result.S.assign(p.value_heads * K * V, 0);
  for (int64_t hv = 0; hv < p.value_heads; ++hv) {
    const std::vector<Token> tokens = Tokens(problem, hv);
    for (int64_t t = 0; t < p.seq_len; ++t) {
      const double* query = &p.queries[(t * p.heads + p.Head(hv)) * K];
      for (int64_t k = 0; k < K; ++k) {
        for (int64_t v = 0; v < V; ++v) {
          result.out[(t * p.value_heads + hv) * V + v] +=
              p.scale * query[k] * tokens[t].after[k * V + v];
        }
      }
    }
    for (int64_t i = 0; i < K * V; ++i) {
      const double initial = p.S.empty() ? 0 : p.S[hv * K * V + i];
      result.S[hv * K * V + i] =
          tokens.empty() ? initial : tokens.back().after[i];
    }
  }
  return result;
}

DeltaGradients DeltaBackward(const DeltaProblem& problem,
                             const std::vector<double>& grad_out,
                             const std::vector<double>& grad_S) {
  const DecayProblem& p = problem.inputs;
  const int64_t K = p.d_key, V = p.d_value;
  DeltaGradients g;
  g.queries.assign(p.queries.size(), 0);
  g.keys.assign(p.keys.size(), 0);
  g.values.assign(p.values.size(), 0);
  g.gates.assign(p.gates.size(), 0);
  g.betas.assign(problem.betas.size(), 0);
  g.S.assign(p.value_heads * K * V, 0);
  for (int64_t hv = 0; hv < p.value_heads; ++hv) {
    const std::vector<Token> tokens = Tokens(problem, hv);
    std::vector<double> dS(K * V, 0);
    for (int64_t i = 0; i < K * V && !grad_S.empty(); ++i) {
      dS[i] = grad_S[hv * K * V + i];
    }
    for (int64_t t = p.seq_len - 1; t >= 0; --t) {
      const Token& token = tokens[t];
      const int64_t row = (t * p.heads + p.Head(hv)) * K;
      const int64_t at = (t * p.value_heads + hv) * V;
      const double beta = problem.betas[t * p.value_heads + hv];
      const double* key = &p.keys[row];
      // o = scale S^T q.
      for (int64_t k = 0; k < K; ++k) {
        for (int64_t v = 0; v < V; ++v) {
          const double go = p.scale * grad_out[at + v];
          g.queries[row + k] += go * token.after[k * V + v];
          dS[k * V + v] += p.queries[row + k] * go;
        }
      }
      // S = W + k u^T, u = beta error, error = v - W^T k.
      std::vector<double> d_error(V, 0);
      for (int64_t v = 0; v < V; ++v) {
        double du = 0;
        for (int64_t k = 0; k < K; ++k) {
          du += dS[k * V + v] * key[k];
          g.keys[row + k] += dS[k * V + v] * beta * token.error[v];
        }
        g.betas[t * p.value_heads + hv] += du * token.error[v];
        d_error[v] = beta * du;
        g.values[at + v] += d_error[v];
      }
      for (int64_t k = 0; k < K; ++k) {
        double decay_gradient = 0;
        for (int64_t v = 0; v < V; ++v) {
          g.keys[row + k] -= d_error[v] * token.W[k * V + v];
          const double dW = dS[k * V + v] - d_error[v] * key[k];
          decay_gradient += dW * token.before[k * V + v];
          dS[k * V + v] = dW * p.Decay(t, hv, k);
        }
        decay_gradient *= p.Decay(t, hv, k);
        if (p.gate_kind == DecayProblem::Gate::kHead) {
          g.gates[hv] += decay_gradient;
        } else if (p.gate_kind == DecayProblem::Gate::kToken) {
          g.gates[t * p.value_heads + hv] += decay_gradient;
        } else if (p.gate_kind == DecayProblem::Gate::kChannel) {
          g.gates[(t * p.value_heads + hv) * K + k] += decay_gradient;
        }
      }
    }
    for (int64_t i = 0; i < K * V; ++i) g.S[hv * K * V + i] = dS[i];
  }
  return g;
}

}  // namespace tarn::reference
