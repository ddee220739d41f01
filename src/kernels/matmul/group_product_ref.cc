#include "kernels/matmul/group_product_ref.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace tarn {

RoundedInputs RoundInputsRef(const float* x, int64_t count) {
  RoundedInputs rounded = {0.0f, {}};
  float largest = 0;
  for (int64_t k = 0; k < count; ++k) {
    if (!std::isfinite(x[k])) {
      rounded.scale = std::numeric_limits<float>::quiet_NaN();
      return rounded;
    }
    largest = std::max(largest, std::fabs(x[k]));
  }
  if (largest < std::ldexp(1.0f, -100)) return rounded;
  rounded.scale = largest / 127.0f;
  const float factor = 127.0f / largest;
  for (int64_t k = 0; k < count; ++k) {
    rounded.codes[k] = static_cast<int8_t>(std::nearbyint(x[k] * factor));
  }
  return rounded;
}

void GroupProductRef(const GroupScheme& scheme, const uint8_t* blocks,
                     const float* bias, const float* x, int64_t outputs,
                     int64_t inputs, float* y) {
  std::vector<RoundedInputs> rounded;
  for (int64_t k = 0; k < inputs; k += scheme.group) {
    rounded.push_back(
        RoundInputsRef(x + k, std::min(scheme.group, inputs - k)));
  }
  for (int64_t n = 0; n < outputs; ++n) {
    float sum = bias == nullptr ? 0.0f : bias[n];
    for (size_t g = 0; g < rounded.size(); ++g) {
      const uint8_t* block = blocks + n * scheme.RowBytes(inputs) +
                             static_cast<int64_t>(g) * scheme.BlockBytes();
      int32_t dot = 0, total = 0;
      for (int64_t k = 0; k < scheme.group; ++k) {
        const int32_t q = rounded[g].codes[k];  // zeros after the last input
        dot += (GroupCode(scheme, block, k) - scheme.Offset()) * q;
        total += q;
      }
      const float s = rounded[g].scale;
      sum = std::fma(GroupScale(block) * s, static_cast<float>(dot), sum);
      if (scheme.minimum) {
        sum = std::fma(GroupMinimum(scheme, block),
                       s * static_cast<float>(total), sum);
      }
    }
    y[n] = sum;
  }
}

}  // namespace tarn
