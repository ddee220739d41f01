#include "kernels/rotary/rotary.h"

#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rotary/rotary.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

HWY_INLINE void Turn(VF c, VF s, VF& low, VF& high) {
  const VF turned = hn::NegMulAdd(high, s, hn::Mul(low, c));
  high = hn::MulAdd(low, s, hn::Mul(high, c));
  low = turned;
}

static void Rotate(const float* cos, const float* sin, int64_t heads,
                   int64_t d_key, float* row) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t half = d_key / 2;
  for (int64_t head = 0; head < heads; ++head) {
    float* x = row + head * d_key;
    float* y = x + half;
    int64_t i = 0;
    for (; i + lanes <= half; i += lanes) {
      VF low = hn::LoadU(d, x + i), high = hn::LoadU(d, y + i);
      Turn(hn::LoadU(d, cos + i), hn::LoadU(d, sin + i), low, high);
      hn::StoreU(low, d, x + i);
      hn::StoreU(high, d, y + i);
    }
    if (i < half) {
      const int64_t rest = half - i;
      VF low = LoadPart(x + i, rest), high = LoadPart(y + i, rest);
      Turn(LoadPart(cos + i, rest), LoadPart(sin + i, rest), low, high);
      StorePart(low, x + i, rest);
      StorePart(high, y + i, rest);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(Rotate);

void RotateRow(const float* cos, const float* sin, int64_t heads, int64_t d_key,
               float* row) {
  HWY_DYNAMIC_DISPATCH(Rotate)(cos, sin, heads, d_key, row);
}

}  // namespace tarn
#endif  // HWY_ONCE
