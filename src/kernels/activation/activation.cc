#include "kernels/activation/activation.h"

#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/activation/activation.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/activation/activation-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

static void Relu(const float* x, int64_t width, float* y) {
  TransformRow(x, width, y, [](VF v) HWY_ATTR { return ReluOf(v); });
}

static void Gelu(const float* x, int64_t width, float* y) {
  TransformRow(x, width, y, [](VF v) HWY_ATTR { return GeluOf(v); });
}

static void Features(FeatureMap map, const float* x, int64_t width, float* y) {
  WithFeatureMap(map, [=](auto row) HWY_ATTR {
    TransformRow(x, width, y,
                 [](VF v) HWY_ATTR { return Feature<decltype(row)::value>(v); });
  });
}

static void AddTo(const float* x, int64_t width, float* y) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= width; i += lanes) {
    hn::StoreU(hn::Add(hn::LoadU(d, y + i), hn::LoadU(d, x + i)), d, y + i);
  }
  for (; i < width; ++i) y[i] += x[i];
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(Relu);
HWY_EXPORT(Gelu);
HWY_EXPORT(Features);
HWY_EXPORT(AddTo);

void ReluRow(const float* x, int64_t width, float* y) {
  HWY_DYNAMIC_DISPATCH(Relu)(x, width, y);
}

void GeluRow(const float* x, int64_t width, float* y) {
  HWY_DYNAMIC_DISPATCH(Gelu)(x, width, y);
}

void FeatureMapRow(FeatureMap map, const float* x, int64_t width, float* y) {
  HWY_DYNAMIC_DISPATCH(Features)(map, x, width, y);
}

void AddToRow(const float* x, int64_t width, float* y) {
  HWY_DYNAMIC_DISPATCH(AddTo)(x, width, y);
}

}  // namespace tarn
#endif  // HWY_ONCE
