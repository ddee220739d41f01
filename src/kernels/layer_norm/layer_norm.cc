#include "kernels/layer_norm/layer_norm.h"

#include <cmath>
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/layer_norm/layer_norm.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

// Two passes: the mean first, so that the variance does not cancel.
static void LayerNorm(const float* x, int64_t width, const float* gamma,
                      const float* beta, float eps, float* y) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const float count = static_cast<float>(width);
  const float mean = ReduceRow(x, width,
                               [](VF v, int64_t, VF sum)
                                   HWY_ATTR { return hn::Add(sum, v); }) /
                     count;
  const VF center = hn::Set(d, mean);
  const float variance =
      ReduceRow(x, width,
                [center](VF v, int64_t valid, VF sum) HWY_ATTR {
                  const VF diff = KeepFirst(hn::Sub(v, center), valid);
                  return hn::MulAdd(diff, diff, sum);
                }) /
      count;
  const VF inverse = hn::Set(d, 1.0f / std::sqrt(variance + eps));
  const auto normalise = [&](VF v, VF scale, VF shift) HWY_ATTR {
    return hn::MulAdd(hn::Mul(hn::Sub(v, center), inverse), scale, shift);
  };
  int64_t i = 0;
  for (; i + lanes <= width; i += lanes) {
    hn::StoreU(normalise(hn::LoadU(d, x + i), hn::LoadU(d, gamma + i),
                         hn::LoadU(d, beta + i)),
               d, y + i);
  }
  if (i < width) {
    const int64_t rest = width - i;
    StorePart(normalise(LoadPart(x + i, rest), LoadPart(gamma + i, rest),
                        LoadPart(beta + i, rest)),
              y + i, rest);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(LayerNorm);

void LayerNormRow(const float* x, int64_t width, const float* gamma,
                  const float* beta, float eps, float* y) {
  HWY_DYNAMIC_DISPATCH(LayerNorm)(x, width, gamma, beta, eps, y);
}

}  // namespace tarn
#endif  // HWY_ONCE
