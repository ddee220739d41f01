// The oracle of aft_simple.h: one channel of one sequence in double, in the
// quadratic form, exp without subtracting a maximum (so |keys| up to some 300).
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace tarn::reference {

/// m, a, b of aft_simple.h; the default is the one before the first key.
struct AftState {
  double m = -std::numeric_limits<double>::infinity(), a = 0, b = 0;
};

struct AftProblem {
  std::vector<double> q;     // [T]
  std::vector<double> k, v;  // [S]
  std::vector<bool> kept;    // [S]; empty: all
  bool causal = false;
  int64_t causal_offset = 0;
  AftState initial;
};

struct AftResult {
  std::vector<double> out;  // [T]
  AftState end;
};

AftResult AftSimple(const AftProblem& in);

struct AftGradient {
  std::vector<double> q, k, v;
  AftState initial;
};

/// The gradient of the problem from that of the result.
AftGradient AftSimpleBackward(const AftProblem& in, const AftResult& grad);

}  // namespace tarn::reference
