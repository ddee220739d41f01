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

static void GeluTanh(const float* x, int64_t width, float* y) {
  TransformRow(x, width, y, [](VF v) HWY_ATTR { return GeluTanhOf(v); });
}

static void Features(FeatureMap map, const float* x, int64_t width, float* y) {
  WithFeatureMap(map, [=](auto row) HWY_ATTR {
    TransformRow(x, width, y, [](VF v) HWY_ATTR {
      return Feature<decltype(row)::value>(v);
    });
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

static void AddScaled(const float* x, float factor, int64_t width, float* y) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const VF by = hn::Set(d, factor);
  int64_t i = 0;
  for (; i + lanes <= width; i += lanes) {
    const VF scaled = hn::Mul(by, hn::LoadU(d, x + i));
    hn::StoreU(hn::Add(hn::LoadU(d, y + i), scaled), d, y + i);
  }
  for (; i < width; ++i) y[i] += factor * x[i];
}

static void Scale(float factor, int64_t width, float* y) {
  TransformRow(y, width, y, [factor](VF v) HWY_ATTR {
    return hn::Mul(v, hn::Set(DF(), factor));
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(Relu);
HWY_EXPORT(Gelu);
HWY_EXPORT(GeluTanh);
HWY_EXPORT(Features);
HWY_EXPORT(AddTo);
HWY_EXPORT(AddScaled);
HWY_EXPORT(Scale);

void ReluRow(const float* x, int64_t width, float* y) {
  HWY_DYNAMIC_DISPATCH(Relu)(x, width, y);
}

void GeluRow(const float* x, int64_t width, float* y) {
  HWY_DYNAMIC_DISPATCH(Gelu)(x, width, y);
}

void GeluTanhRow(const float* x, int64_t width, float* y) {
  HWY_DYNAMIC_DISPATCH(GeluTanh)(x, width, y);
}

void FeatureMapRow(FeatureMap map, const float* x, int64_t width, float* y) {
  HWY_DYNAMIC_DISPATCH(Features)(map, x, width, y);
}

void AddToRow(const float* x, int64_t width, float* y) {
  HWY_DYNAMIC_DISPATCH(AddTo)(x, width, y);
}

void AddScaledRow(const float* x, float factor, int64_t width, float* y) {
  HWY_DYNAMIC_DISPATCH(AddScaled)(x, factor, width, y);
}

void ScaleRow(float factor, int64_t width, float* y) {
  HWY_DYNAMIC_DISPATCH(Scale)(factor, width, y);
}

}  // namespace tarn
#endif  // HWY_ONCE
