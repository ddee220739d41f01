// How the tests of the gated recurrences measure errors: rows, single numbers
// of a head, and sums, each against the size of what may cancel in it.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/recurrence/test_problem.h"

namespace tarn::testing {

// Every head's numbers together, one a token: for measures over a head.
inline std::vector<double> ByHead(const std::vector<double>& x, int64_t heads,
                                  int64_t width) {
  std::vector<double> y(x.size());
  const int64_t tokens = static_cast<int64_t>(x.size()) / (heads * width);
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < width; ++i) {
        y[(h * tokens + t) * width + i] = x[(t * heads + h) * width + i];
      }
    }
  }
  return y;
}

// Tolerances of rows of outputs and their gradients. Where gates close, a row
// is a product of one query and one key, which may cancel, and a row of one
// number is one sum over keys: such rows are measured against the size of their
// terms. The RMS of n roundings to 16 bits scatters by 1 / sqrt(n), and more
// where a few numbers are most of it.
struct RowTolerance {
  double r, m, floor;
};
inline RowTolerance RowsOf(const DecayProblem& p, Tolerance t, DType dtype,
                           size_t numbers) {
  const double n = static_cast<double>(std::max<size_t>(numbers, 1));
  const double scatter = dtype == DType::kF32 ? 1 : 1 + 4 / std::sqrt(n);
  const bool single = p.d_key == 1 || p.d_value == 1;
  const double keys = p.scale * std::sqrt(static_cast<double>(p.d_key));
  return {t.r * scatter, t.m,
          single ? std::max(0.1, 0.1 * keys) : std::max(0.03, 0.01 * keys)};
}

// The same problem with its constant gate given at every token.
inline DecayProblem WithTokenGates(const DecayProblem& p) {
  DecayProblem tokens = p;
  tokens.gate_kind = Gate::kToken;
  tokens.gates.clear();
  for (int64_t t = 0; t < p.seq_len; ++t) {
    tokens.gates.insert(tokens.gates.end(), p.gates.begin(), p.gates.end());
  }
  return tokens;
}

// A constant gate's gradient is a sum over tokens, which may cancel: it is
// measured against the sum of its terms' sizes. terms: of every token [T, HV].
inline void ExpectCloseSums(const std::vector<double>& x,
                            const std::vector<double>& ref,
                            const std::vector<double>& terms, double r,
                            const std::string& what, double floor = 0) {
  ASSERT_EQ(x.size(), ref.size()) << what;
  for (size_t h = 0; h < ref.size(); ++h) {
    double size = floor;
    for (size_t i = h; i < terms.size(); i += ref.size()) {
      size += std::abs(terms[i]);
    }
    EXPECT_LE(std::abs(x[h] - ref[h]), r * size + 1e-30) << what << " " << h;
  }
}

// Gates and betas: a single number may cancel, so the measure is a head's.
inline void ExpectCloseByHead(const std::vector<double>& x,
                              const std::vector<double>& ref, int64_t heads,
                              int64_t width, double r, double m,
                              const std::string& what, double floor = 0) {
  ASSERT_EQ(x.size(), ref.size()) << what;
  if (x.empty()) return;
  ExpectClose(ByHead(x, heads, width), ByHead(ref, heads, width),
              static_cast<int64_t>(x.size()) / heads, r, m, what, floor);
}

}  // namespace tarn::testing
