#include "kernels/decay_gate/depth_bounds.h"

#include <algorithm>
#include <cmath>

namespace tarn {

void DepthBounds(const float* logits, int64_t layers, int64_t count,
                 float* bounds) {
  for (int64_t c = 0; c < count; ++c) {
    double largest = -INFINITY, total = 0, sum = 0;
    for (int64_t i = 0; i < layers; ++i) {
      largest = std::max(largest, static_cast<double>(logits[i * count + c]));
    }
    for (int64_t i = 0; i < layers; ++i) {
      total += std::exp(static_cast<double>(logits[i * count + c]) - largest);
    }
    for (int64_t i = 0; i < layers; ++i) {
      const double logit = static_cast<double>(logits[i * count + c]);
      if (i > 0) sum += std::exp(logit - largest) / total;
      bounds[i * count + c] = static_cast<float>(sum);
    }
  }
}

}  // namespace tarn
