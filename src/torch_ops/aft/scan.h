// The scan of aft-simple over one sequence in double, elementwise in the
// channels: float64 is for checks of gradients, where no kernel is wanted
// (kernels/aft_simple has float32). Per channel the state (m, a, b) after keys
// 0..j is, with a running maximum,
//   m_j = max(m_{j-1}, k_j)
//   a_j = a_{j-1} exp(m_{j-1} - m_j) + exp(k_j - m_j) v_j,  b_j with v = 1,
// so no exponent is ever positive and one exp serves both factors. The gradient
// runs the same way backwards with sums over the queries that follow, kept
// relative to the maximum at the query: again no exponent is positive.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace tarn::ops {

/// Channels [begin, end) of one sequence. Rows of `width` channels are dense.
struct AftColumns {
  int64_t queries = 0, keys = 0, width = 0, begin = 0, end = 0;
  int64_t reach = 0;  // query i reads keys j <= i + reach, in [-queries, keys]
  const double* q = nullptr;
  const double* k = nullptr;
  const double* v = nullptr;
  const bool* kept = nullptr;  // [keys]; null: all

  int64_t columns() const { return end - begin; }
  bool Keeps(int64_t key) const { return kept == nullptr || kept[key]; }
  /// Keys that query i reads: [0, this).
  int64_t KeysOf(int64_t i) const {
    return std::clamp<int64_t>(i + reach + 1, 0, keys);
  }
};

/// m, a, b of a sequence, `width` channels each.
struct AftRows {
  double* m = nullptr;
  double* a = nullptr;
  double* b = nullptr;
};

inline double AftGate(double q) { return 1.0 / (1.0 + std::exp(-q)); }

/// Absorbs key j into the state. `last` (may be null): the key that holds the
/// maximum of each channel.
inline void AftAbsorb(const AftColumns& in, int64_t j, const AftRows& state,
                      int64_t* last) {
  const double* k = in.k + j * in.width;
  const double* v = in.v + j * in.width;
  for (int64_t c = in.begin; c < in.end; ++c) {
    if (k[c] == -std::numeric_limits<double>::infinity()) continue;  // weight 0
    const double distance = k[c] - state.m[c];
    const double factor = std::exp(-std::abs(distance));
    const bool higher = distance > 0.0;
    const double old = higher ? factor : 1.0, added = higher ? 1.0 : factor;
    state.a[c] = state.a[c] * old + v[c] * added;
    state.b[c] = state.b[c] * old + added;
    if (higher) {
      state.m[c] = k[c];
      if (last != nullptr) last[c - in.begin] = j;
    }
  }
}

/// Writes out [queries, width] and leaves the state after all kept keys.
inline void AftScan(const AftColumns& in, const AftRows& state, double* out) {
  int64_t next = 0;
  const auto absorb_to = [&](int64_t end) {
    for (; next < end; ++next) {
      if (in.Keeps(next)) AftAbsorb(in, next, state, nullptr);
    }
  };
  for (int64_t i = 0; i < in.queries; ++i) {
    absorb_to(in.KeysOf(i));
    const int64_t row = i * in.width;
    for (int64_t c = in.begin; c < in.end; ++c) {
      const double b = state.b[c];
      out[row + c] = b == 0.0 ? 0.0 : AftGate(in.q[row + c]) * (state.a[c] / b);
    }
  }
  absorb_to(in.keys);
}

/// Gradients of a sequence; grad_out and the three of the final state may be
/// null. state: the initial one, overwritten. initial: its gradients.
struct AftGradients {
  const double* grad_out = nullptr;
  const double* grad_m = nullptr;
  const double* grad_a = nullptr;
  const double* grad_b = nullptr;
  double* q = nullptr;
  double* k = nullptr;
  double* v = nullptr;
  AftRows initial;
};

/// One pass forward that notes m, b and a / b at every query (scratch of 3
/// queries x columns values), one pass back.
class AftScanBackward {
 public:
  AftScanBackward(const AftColumns& in, const AftRows& state,
                  const AftGradients& g)
      : in_(in),
        g_(g),
        n_(in.columns()),
        m_(in.queries * n_),
        b_(in.queries * n_),
        average_(in.queries * n_),
        weighted_(n_),
        centred_(n_),
        top_(n_),
        maximum_gradient_(n_),
        last_(n_, -1) {
    Forward(state);
  }

  void Run(const AftRows& state) {
    StartFromFinalState(state);
    int64_t top = in_.keys;
    for (int64_t i = in_.queries - 1; i >= 0; --i) {
      for (; top > in_.KeysOf(i); --top) Key(top - 1);
      Query(i);
    }
    for (; top > 0; --top) Key(top - 1);
  }

  /// After Run. initial: the state that Forward started from.
  void FinishInitialState(const AftRows& initial) {
    for (int64_t c = in_.begin; c < in_.end; ++c) {
      const int64_t n = c - in_.begin;
      const double m = initial.m[c];
      const bool empty = m == -std::numeric_limits<double>::infinity();
      const double weight = empty ? 0.0 : std::exp(m - top_[n]);
      g_.initial.a[c] = weight * weighted_[n];
      g_.initial.b[c] = -weight * centred_[n];
      g_.initial.m[c] = initial.a[c] * g_.initial.a[c] +
                        initial.b[c] * g_.initial.b[c] +
                        (last_[n] < 0 ? maximum_gradient_[n] : 0.0);
    }
  }

 private:
  void Forward(const AftRows& state) {
    int64_t next = 0;
    for (int64_t i = 0; i <= in_.queries; ++i) {
      const int64_t end = i < in_.queries ? in_.KeysOf(i) : in_.keys;
      for (; next < end; ++next) {
        if (in_.Keeps(next)) AftAbsorb(in_, next, state, last_.data());
      }
      if (i == in_.queries) break;
      for (int64_t n = 0; n < n_; ++n) {
        const int64_t c = in_.begin + n, at = i * n_ + n;
        m_[at] = state.m[c];
        b_[at] = state.b[c];
        average_[at] = state.b[c] == 0.0 ? 0.0 : state.a[c] / state.b[c];
      }
    }
  }

  // The final state reads every key, undivided. Its maximum's own gradient,
  // less what a and b lose by it, goes to the key that holds the maximum.
  void StartFromFinalState(const AftRows& state) {
    const auto at = [](const double* p, int64_t c) {
      return p == nullptr ? 0.0 : p[c];
    };
    for (int64_t c = in_.begin; c < in_.end; ++c) {
      const int64_t n = c - in_.begin;
      top_[n] = state.m[c];
      weighted_[n] = at(g_.grad_a, c);
      centred_[n] = -at(g_.grad_b, c);
      maximum_gradient_[n] = at(g_.grad_m, c) - state.a[c] * at(g_.grad_a, c) -
                             state.b[c] * at(g_.grad_b, c);
    }
  }

  void Query(int64_t i) {
    for (int64_t n = 0; n < n_; ++n) {
      const int64_t row = i * in_.width + in_.begin + n, at = i * n_ + n;
      const double grad = g_.grad_out == nullptr ? 0.0 : g_.grad_out[row];
      g_.q[row] = 0.0;
      if (b_[at] == 0.0) continue;  // nothing read: no gradient
      const double scale = std::exp(m_[at] - top_[n]);
      weighted_[n] *= scale;
      centred_[n] *= scale;
      top_[n] = m_[at];
      if (grad == 0.0) continue;  // a query of padding may be NaN
      const double gate = AftGate(in_.q[row]);
      g_.q[row] = grad * average_[at] * gate * (1.0 - gate);
      weighted_[n] += grad * gate / b_[at];
      centred_[n] += grad * gate / b_[at] * average_[at];
    }
  }

  void Key(int64_t j) {
    for (int64_t n = 0; n < n_; ++n) {
      const int64_t row = j * in_.width + in_.begin + n;
      g_.k[row] = g_.v[row] = 0.0;
      const double k = in_.k[row];
      const bool weightless = k == -std::numeric_limits<double>::infinity();
      if (!in_.Keeps(j) || weightless) continue;
      const double weight = std::exp(k - top_[n]);
      const double pull = weighted_[n] == 0.0 ? 0.0 : in_.v[row] * weighted_[n];
      g_.v[row] = weight * weighted_[n];
      g_.k[row] = weight * (pull - centred_[n]) +
                  (last_[n] == j ? maximum_gradient_[n] : 0.0);
    }
  }

  AftColumns in_;
  AftGradients g_;
  int64_t n_;
  std::vector<double> m_, b_, average_;     // at each query
  std::vector<double> weighted_, centred_;  // sum dr / b, sum dr a / b^2
  std::vector<double> top_;                 // they are relative to exp(-top)
  std::vector<double> maximum_gradient_;
  std::vector<int64_t> last_;
};

}  // namespace tarn::ops
