// Features of the polynomial kernel of degree 2.
//   phi(x).phi(y) = a0 + a1 s + a2 s^2,   s = lambda x.y
//   phi(x) = [ sqrt(a0) ; sqrt(a1) u_i ; sqrt(a2) u_i^2 ;
//              sqrt(2 a2) u_i u_l for i < l ],   u = sqrt(lambda) x
// with (a0, a1, a2) = (1, 2, 1), so that the kernel is (1 + s)^2 and never
// negative, and lambda = 1 / sqrt(width).
#pragma once

#include <cstdint>

namespace tarn {

/// Features of a row of `width` entries: 1 + width + width (width + 1) / 2.
constexpr int64_t Poly2Width(int64_t width) {
  return 1 + width + width * (width + 1) / 2;
}

/// x: [width], width >= 1; features: [Poly2Width(width)], apart from x. NaN
/// stays NaN. Allocates nothing, thread-safe, O(width^2).
void Poly2Row(const float* x, int64_t width, float* features);

}  // namespace tarn
