#include "kernels/rms_norm/rms_norm.h"

#include <cmath>
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rms_norm/rms_norm.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

static void RmsNorm(const float* x, int64_t width, const float* gamma,
                    float eps, float* y) {
  // Entries after the row are loaded as 0 and add nothing.
  const float squares = ReduceRow(x, width, [](VF v, int64_t, VF sum) HWY_ATTR {
    return hn::MulAdd(v, v, sum);
  });
  const float mean = squares / static_cast<float>(width);
  const VF inverse = hn::Set(DF(), 1.0f / std::sqrt(mean + eps));
  CombineRows(x, gamma, width, y, [inverse](VF v, VF scale) HWY_ATTR {
    return hn::Mul(hn::Mul(v, inverse), scale);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(RmsNorm);

void RmsNormRow(const float* x, int64_t width, const float* gamma, float eps,
                float* y) {
  HWY_DYNAMIC_DISPATCH(RmsNorm)(x, width, gamma, eps, y);
}

}  // namespace tarn
#endif  // HWY_ONCE
