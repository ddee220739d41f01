// Vectors for the tests of kernels over rows.
#pragma once

#include <cstdint>
#include <vector>

#include "core/rng.h"

namespace tarn::testing {

inline std::vector<float> Normals(int64_t n, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> x(n);
  for (float& v : x) v = static_cast<float>(rng.Normal());
  return x;
}

inline std::vector<double> Widen(const std::vector<float>& x) {
  return {x.begin(), x.end()};
}

}  // namespace tarn::testing
