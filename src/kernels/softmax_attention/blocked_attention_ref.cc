#include "kernels/softmax_attention/blocked_attention_ref.h"

#include <algorithm>
#include <cmath>

namespace tarn::reference {
namespace {

// Offsets into the dense tensors.
struct At {
  const AttentionProblem& p;
  int64_t query(int64_t b, int64_t i, int64_t h) const {
    return ((b * p.seq_len + i) * p.heads + h) * p.d_key;
  }
  int64_t key(int64_t b, int64_t j, int64_t h) const {
    return ((b * p.key_len + j) * p.heads + h) * p.d_key;
  }
  int64_t value(int64_t b, int64_t j, int64_t h) const {
    return ((b * p.key_len + j) * p.heads + h) * p.d_value;
  }
  int64_t out(int64_t b, int64_t i, int64_t h) const {
    return ((b * p.seq_len + i) * p.heads + h) * p.d_value;
  }
  int64_t pair(int64_t b, int64_t h, int64_t i, int64_t j) const {
    return ((b * p.heads + h) * p.seq_len + i) * p.key_len + j;
  }
};

bool Allowed(const AttentionProblem& p, int64_t b, int64_t h, int64_t i,
             int64_t j) {
  const BlockedAttentionOptions& o = p.options;
  const int64_t pair = At{p}.pair(b, h, i, j);
  if (o.causal && j > i + o.causal_offset) return false;
  if (o.local_context > 0) {
    const int64_t c = o.local_context;
    if (j < i - c / 2 || j >= i + (c + 1) / 2) return false;
  }
  if (o.window > 0 && j <= i + o.causal_offset - o.window) return false;
  if (!p.key_mask.empty() && !p.key_mask[b * p.key_len + j]) return false;
  if (!p.key_lengths.empty() && j >= p.key_lengths[b]) return false;
  if (!p.mask.empty() && !p.mask[pair]) return false;
  return p.bias.empty() || p.bias[pair] != -INFINITY;
}

// scale q . k.
double Product(const AttentionProblem& p, int64_t b, int64_t h, int64_t i,
               int64_t j) {
  const At at{p};
  double dot = 0;
  for (int64_t c = 0; c < p.d_key; ++c) {
    dot += p.queries[at.query(b, i, h) + c] * p.keys[at.key(b, j, h) + c];
  }
  return double{p.options.scale} * dot;
}

double Score(const AttentionProblem& p, int64_t b, int64_t h, int64_t i,
             int64_t j) {
  const double product = Product(p, b, h, i, j), cap = p.options.softcap;
  return (cap > 0 ? cap * std::tanh(product / cap) : product) +
         (p.bias.empty() ? 0.0 : p.bias[At{p}.pair(b, h, i, j)]);
}

// d Score / d Product.
double CapSlope(const AttentionProblem& p, int64_t b, int64_t h, int64_t i,
                int64_t j) {
  const double cap = p.options.softcap;
  if (cap == 0) return 1.0;
  const double cosh = std::cosh(Product(p, b, h, i, j) / cap);
  return 1 / (cosh * cosh);
}

// Calls f(b, h, i) for every row of weights.
template <typename F>
void ForRows(const AttentionProblem& p, const F& f) {
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t h = 0; h < p.heads; ++h) {
      for (int64_t i = 0; i < p.seq_len; ++i) f(b, h, i);
    }
  }
}

}  // namespace

AttentionAnswer SoftmaxAttention(const AttentionProblem& p) {
  const At at{p};
  AttentionAnswer answer;
  answer.out.assign(p.batch * p.seq_len * p.heads * p.d_value, 0.0);
  answer.weights.assign(p.batch * p.heads * p.seq_len * p.key_len, 0.0);
  ForRows(p, [&](int64_t b, int64_t h, int64_t i) {
    double largest = p.sinks.empty() ? -INFINITY : p.sinks[h], sum = 0;
    for (int64_t j = 0; j < p.key_len; ++j) {
      if (Allowed(p, b, h, i, j)) {
        largest = std::max(largest, Score(p, b, h, i, j));
      }
    }
    if (!p.sinks.empty()) sum += std::exp(p.sinks[h] - largest);
    for (int64_t j = 0; j < p.key_len; ++j) {
      if (!Allowed(p, b, h, i, j)) continue;
      sum += answer.weights[at.pair(b, h, i, j)] =
          std::exp(Score(p, b, h, i, j) - largest);
    }
    for (int64_t j = 0; j < p.key_len; ++j) {
      if (!Allowed(p, b, h, i, j)) continue;
      const int64_t pair = at.pair(b, h, i, j);
      answer.weights[pair] /= sum;
      const double factor = p.factors.empty() ? 1.0 : p.factors[pair];
      for (int64_t c = 0; c < p.d_value; ++c) {
        answer.out[at.out(b, i, h) + c] +=
            factor * answer.weights[pair] * p.values[at.value(b, j, h) + c];
      }
    }
  });
  return answer;
}

AttentionGradient SoftmaxAttentionBackward(
    const AttentionProblem& p, const std::vector<double>& grad_out) {
  const At at{p};
  const AttentionAnswer answer = SoftmaxAttention(p);
  AttentionGradient g;
  g.queries.assign(p.queries.size(), 0.0);
  g.keys.assign(p.keys.size(), 0.0);
  g.values.assign(p.values.size(), 0.0);
  g.bias.assign(answer.weights.size(), 0.0);
  g.sinks.assign(p.sinks.size(), 0.0);
  ForRows(p, [&](int64_t b, int64_t h, int64_t i) {
    // dp of each weight, then ds = p (dp - sum_l p_l dp_l).
    std::vector<double> grad_weight(p.key_len, 0.0);
    double mean = 0, kept = 0;
    for (int64_t j = 0; j < p.key_len; ++j) {
      if (!Allowed(p, b, h, i, j)) continue;
      const int64_t pair = at.pair(b, h, i, j);
      const double factor = p.factors.empty() ? 1.0 : p.factors[pair];
      for (int64_t c = 0; c < p.d_value; ++c) {
        const double from = grad_out[at.out(b, i, h) + c];
        grad_weight[j] += factor * from * p.values[at.value(b, j, h) + c];
        g.values[at.value(b, j, h) + c] += factor * answer.weights[pair] * from;
      }
      mean += answer.weights[pair] * grad_weight[j];
      kept += answer.weights[pair];
    }
    // The sink's own weight is what the others leave.
    if (!p.sinks.empty()) g.sinks[h] -= (1 - kept) * mean;
    for (int64_t j = 0; j < p.key_len; ++j) {
      if (!Allowed(p, b, h, i, j)) continue;
      const int64_t pair = at.pair(b, h, i, j);
      const double ds = answer.weights[pair] * (grad_weight[j] - mean);
      g.bias[pair] = ds;
      for (int64_t c = 0; c < p.d_key; ++c) {
        const double scale = p.options.scale * CapSlope(p, b, h, i, j);
        g.queries[at.query(b, i, h) + c] +=
            scale * ds * p.keys[at.key(b, j, h) + c];
        g.keys[at.key(b, j, h) + c] +=
            scale * ds * p.queries[at.query(b, i, h) + c];
      }
    }
  });
  return g;
}

}  // namespace tarn::reference
