#include "kernels/poly2/poly2.h"

#include <cmath>

namespace tarn {

// Every loop below is a product of one number with a row: the compiler
// vectorises it, and every feature's bits depend on its two entries alone.
void Poly2Row(const float* x, int64_t width, float* features) {
  const double root = std::sqrt(2.0);
  const double lambda = 1.0 / std::sqrt(static_cast<double>(width));
  // sqrt(2 lambda), for the linear part and as sqrt(2) times the scale.
  const float linear = static_cast<float>(std::sqrt(2.0 * lambda));
  const float square = static_cast<float>(lambda);
  const float mixed = static_cast<float>(root * lambda);
  features[0] = 1.0f;
  float* out = features + 1;
  for (int64_t i = 0; i < width; ++i) out[i] = linear * x[i];
  out += width;
  for (int64_t i = 0; i < width; ++i) out[i] = square * (x[i] * x[i]);
  out += width;
  for (int64_t i = 0; i < width; ++i) {
    const float factor = mixed * x[i];
    for (int64_t l = i + 1; l < width; ++l) *out++ = factor * x[l];
  }
}

}  // namespace tarn
