#include "kernels/gate_rows/gate_rows.h"

#include <cmath>
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

static void SoftplusGates(const GateRow& form, const float* x, float* g) {
  const int64_t width = form.width;
  if (width == 1) {  // a vector of heads
    const int64_t heads = form.heads;
    MapShifted(x, form.bias, heads, g, [](VF v) HWY_ATTR { return v; });
    return CombineRows(g, form.rates, heads, g, [](VF v, VF rate) HWY_ATTR {
      return SoftplusGate(v, rate);
    });
  }
  for (int64_t h = 0; h < form.heads; ++h) {
    const VF rate = hn::Set(DF(), form.rates[h]);
    const float* bias = form.bias == nullptr ? nullptr : form.bias + h * width;
    MapShifted(x + h * width, bias, width, g + h * width,
               [rate](VF v) HWY_ATTR { return SoftplusGate(v, rate); });
  }
}

static void BoundedGates(const GateRow& form, const float* x, float* g,
                         float* keys) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t n = form.heads * form.width;
  const float* bounds = form.bias;
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const VF l = bounds == nullptr ? hn::Zero(d) : hn::LoadU(d, bounds + i);
    const BoundedGate gate = BoundedAt(hn::LoadU(d, x + i), l);
    hn::StoreU(gate.g, d, g + i);
    hn::StoreU(gate.key, d, keys + i);
  }
  if (i == n) return;
  const VF l = bounds == nullptr ? hn::Zero(d) : LoadPart(bounds + i, n - i);
  const BoundedGate gate = BoundedAt(LoadPart(x + i, n - i), l);
  StorePart(gate.g, g + i, n - i);
  StorePart(gate.key, keys + i, n - i);
}

static void DecayGates(const GateRow& form, const float* x, float* g,
                       float* keys) {
  const int64_t n = form.heads * form.width;
  const VF scale = hn::Set(DF(), -form.scale);
  switch (form.form) {
    case GateForm::kSoftplus:
      return SoftplusGates(form, x, g);
    case GateForm::kBounded:
      return BoundedGates(form, x, g, keys);
    case GateForm::kLogSigmoid:
      return MapShifted(x, form.bias, n, g, [scale](VF v) HWY_ATTR {
        return hn::Mul(scale, SoftplusOfLane(hn::Neg(v)));
      });
    case GateForm::kExponential:
      return MapShifted(x, form.bias, n, g,
                        [](VF v) HWY_ATTR { return hn::Neg(ExpOfAny(v)); });
    case GateForm::kSigmoid:
      return MapShifted(x, form.bias, n, g, [scale](VF v) HWY_ATTR {
        return hn::Mul(scale, LogisticAt(v).below);
      });
  }
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

static void UnitHeads(int64_t heads, int64_t width, float eps, float* x) {
  for (float* row = x; row < x + heads * width; row += width) {
    const float squares = ReduceRow(
        row, width,
        [](VF v, int64_t, VF sum) HWY_ATTR { return hn::MulAdd(v, v, sum); });
    const VF inverse = hn::Set(DF(), 1.0f / std::sqrt(squares + eps));
    TransformRow(row, width, row,
                 [inverse](VF v) HWY_ATTR { return hn::Mul(v, inverse); });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(DecayGates);
HWY_EXPORT(SiluEntries);
HWY_EXPORT(SigmoidEntries);
HWY_EXPORT(SoftplusEntries);
HWY_EXPORT(TanhEntries);
HWY_EXPORT(UnitHeads);

void DecayGateRow(const GateRow& form, const float* x, float* g, float* keys) {
  HWY_DYNAMIC_DISPATCH(DecayGates)(form, x, g, keys);
}

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

void UnitRow(int64_t heads, int64_t width, float eps, float* x) {
  HWY_DYNAMIC_DISPATCH(UnitHeads)(heads, width, eps, x);
}

}  // namespace tarn
#endif  // HWY_ONCE
