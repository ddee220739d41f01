#include "kernels/aft_simple/aft_simple_ref.h"

#include <algorithm>
#include <cmath>

namespace tarn::reference {
namespace {

double Sigma(double x) { return 1 / (1 + std::exp(-x)); }

bool Counts(const AftProblem& in, size_t j) {
  return in.kept.empty() || in.kept[j];
}

bool Reads(const AftProblem& in, size_t i, size_t j) {
  return Counts(in, j) &&
         (!in.causal || static_cast<int64_t>(j) <=
                            static_cast<int64_t>(i) + in.causal_offset);
}

// sum exp(k) v and sum exp(k) over the initial state and the keys that
// `reads(j)` names.
struct Sums {
  double a, b;
};

template <typename F>
Sums SumsOf(const AftProblem& in, const F& reads) {
  const double start = std::exp(in.initial.m);
  Sums sums = {start * in.initial.a, start * in.initial.b};
  for (size_t j = 0; j < in.k.size(); ++j) {
    if (!reads(j)) continue;
    const double weight = std::exp(in.k[j]);
    if (weight == 0) continue;
    sums.a += weight * in.v[j];
    sums.b += weight;
  }
  return sums;
}

// The first key that holds the maximum, -1 where the initial state does.
int64_t Top(const AftProblem& in) {
  double m = in.initial.m;
  int64_t top = -1;
  for (size_t j = 0; j < in.k.size(); ++j) {
    if (!Counts(in, j) || !(in.k[j] > m)) continue;
    m = in.k[j];
    top = static_cast<int64_t>(j);
  }
  return top;
}

}  // namespace

AftResult AftSimple(const AftProblem& in) {
  AftResult result;
  for (size_t i = 0; i < in.q.size(); ++i) {
    const Sums s = SumsOf(in, [&](size_t j) { return Reads(in, i, j); });
    result.out.push_back(s.b == 0 ? 0 : Sigma(in.q[i]) * s.a / s.b);
  }
  const Sums s = SumsOf(in, [&](size_t j) { return Counts(in, j); });
  const int64_t top = Top(in);
  const double m = top < 0 ? in.initial.m : in.k[static_cast<size_t>(top)];
  result.end.m = m;
  if (s.b != 0) result.end = {m, s.a / std::exp(m), s.b / std::exp(m)};
  return result;
}

AftGradient AftSimpleBackward(const AftProblem& in, const AftResult& grad) {
  AftGradient g;
  g.k.assign(in.k.size(), 0.0);
  g.v.assign(in.k.size(), 0.0);
  g.initial = {0, 0, 0};
  const double start = std::exp(in.initial.m);
  // Adds the gradient of one reader's sums to all that it reads.
  const auto give = [&](double of_a, double of_b, const auto& reads) {
    g.initial.a += start * of_a;
    g.initial.b += start * of_b;
    for (size_t j = 0; j < in.k.size(); ++j) {
      const double weight = std::exp(in.k[j]);
      if (!reads(j) || weight == 0) continue;
      g.v[j] += weight * of_a;
      g.k[j] += weight * (in.v[j] * of_a + of_b);
    }
  };
  for (size_t i = 0; i < in.q.size(); ++i) {
    const auto reads = [&](size_t j) { return Reads(in, i, j); };
    const Sums s = SumsOf(in, reads);
    g.q.push_back(0);
    if (s.b == 0) continue;
    const double gate = Sigma(in.q[i]), y = s.a / s.b;
    g.q.back() = grad.out[i] * y * gate * (1 - gate);
    give(grad.out[i] * gate / s.b, -grad.out[i] * gate * y / s.b, reads);
  }
  const AftState end = AftSimple(in).end;
  const double scale = end.b == 0 ? 0 : std::exp(-end.m);
  give(grad.end.a * scale, grad.end.b * scale,
       [&](size_t j) { return Counts(in, j); });
  const double maximum = grad.end.m - end.a * grad.end.a - end.b * grad.end.b;
  const int64_t top = Top(in);
  if (top >= 0) g.k[static_cast<size_t>(top)] += maximum;
  g.initial.m = in.initial.a * g.initial.a + in.initial.b * g.initial.b +
                (top < 0 ? maximum : 0.0);
  return g;
}

}  // namespace tarn::reference
