#include "kernels/gate_rows/gate_rows.h"

#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gate_rows/gate_rows.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/gate_rows/gate_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

// y = f(x + bias).
template <class F>
HWY_INLINE void MapShifted(const float* x, const float* bias, int64_t n,
                           float* y, const F& f) {
  if (bias == nullptr) return TransformRow(x, n, y, f);
  CombineRows(x, bias, n, y,
              [&f](VF v, VF shift) HWY_ATTR { return f(hn::Add(v, shift)); });
}

static void SiluEntries(const float* x, int64_t n, float* y) {
  TransformRow(x, n, y, [](VF v) HWY_ATTR { return SiluOfAny(v); });
}

static void SigmoidEntries(const float* x, int64_t n, float* y) {
  TransformRow(x, n, y, [](VF v) HWY_ATTR { return LogisticAt(v).below; });
}

static void SoftplusEntries(const float* x, const float* bias, int64_t n,
                            float* y) {
  MapShifted(x, bias, n, y, [](VF v) HWY_ATTR { return SoftplusOfLane(v); });
}

static void TanhEntries(const float* x, int64_t n, float* y) {
  TransformRow(x, n, y, [](VF v) HWY_ATTR { return TanhOf(v); });
}

static void SquareReluEntries(const float* x, int64_t n, float* y) {
  TransformRow(x, n, y,
               [](VF v) HWY_ATTR { return Feature<FeatureMap::kRelu2>(v); });
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(SiluEntries);
HWY_EXPORT(SigmoidEntries);
HWY_EXPORT(SoftplusEntries);
HWY_EXPORT(TanhEntries);
HWY_EXPORT(SquareReluEntries);

void SiluRow(const float* x, int64_t n, float* y) {
  HWY_DYNAMIC_DISPATCH(SiluEntries)(x, n, y);
}

void SigmoidRow(const float* x, int64_t n, float* y) {
  HWY_DYNAMIC_DISPATCH(SigmoidEntries)(x, n, y);
}

void SoftplusRow(const float* x, const float* bias, int64_t n, float* y) {
  HWY_DYNAMIC_DISPATCH(SoftplusEntries)(x, bias, n, y);
}

void TanhRow(const float* x, int64_t n, float* y) {
  HWY_DYNAMIC_DISPATCH(TanhEntries)(x, n, y);
}

void SquareReluRow(const float* x, int64_t n, float* y) {
  HWY_DYNAMIC_DISPATCH(SquareReluEntries)(x, n, y);
}

}  // namespace tarn
#endif  // HWY_ONCE
