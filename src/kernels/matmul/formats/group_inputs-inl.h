// Rows of inputs rounded to 8 bits, a scale for each group of a row: s =
// max|x| / 127, q = x (127 / max|x|), to nearest even. A group whose maximum is
// below 2^-100 counts as zeros (127 / max|x| might overflow); a NaN or an
// infinity in a group makes its scale NaN, hence every output of the row.

#if defined(TARN_KERNELS_MATMUL_GROUP_INPUTS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_MATMUL_GROUP_INPUTS_INL_H_
#undef TARN_KERNELS_MATMUL_GROUP_INPUTS_INL_H_
#else
#define TARN_KERNELS_MATMUL_GROUP_INPUTS_INL_H_
#endif

#include <cstdint>
#include <cstring>
#include <limits>

#include "core/groups/group_scheme.h"
#include "core/numbers/bit_cast.h"
#include "hwy/highway.h"
#include "kernels/matmul/formats/group_dots-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

// What products need of one group of a row besides its codes.
struct GroupHead {
  float scale;    // s
  int32_t start;  // -offset sum q: where the sum of products begins
  float sum;      // s sum q, for minima
};

// Codes of `group` inputs, x [group], to `codes`, group * 4 / kStepInputs
// bytes.
template <class Dot>
HWY_INLINE GroupHead RoundGroupInputs(const float* HWY_RESTRICT x,
                                      int64_t group, int32_t offset,
                                      uint8_t* HWY_RESTRICT codes) {
  const DF d;
  const DI di;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  // Magnitudes compare as integers, NaN above infinity.
  const VI magnitude = hn::Set(di, 0x7FFFFFFF);
  VI most = hn::Zero(di);
  for (int64_t i = 0; i < group; i += lanes) {
    most =
        hn::Max(most, hn::And(hn::BitCast(di, hn::LoadU(d, x + i)), magnitude));
  }
  const float largest = BitCast<float>(hn::GetLane(hn::MaxOfLanes(di, most)));
  if (!(largest >= 0x1p-100f && largest <= std::numeric_limits<float>::max())) {
    constexpr int64_t kBytes = 32 * 4 / Dot::kStepInputs;  // of 32 inputs
    for (int64_t i = 0; i < group; i += 32, codes += kBytes) {
      std::memset(codes, 0, kBytes);
    }
    const float scale =
        largest < 1 ? 0.0f : std::numeric_limits<float>::quiet_NaN();
    return {scale, 0, scale};
  }
  const float scale = largest / 127.0f;
  const VF factor = hn::Set(d, 127.0f / largest);
  VI sum = hn::Zero(di);
  for (int64_t i = 0; i < group; i += 2 * lanes) {
    const VI a = hn::NearestInt(hn::Mul(hn::LoadU(d, x + i), factor));
    const VI b = hn::NearestInt(hn::Mul(hn::LoadU(d, x + i + lanes), factor));
    sum = hn::Add(sum, hn::Add(a, b));
    Dot::StoreInputs(a, b, i, codes);
  }
  const int32_t total = hn::GetLane(hn::SumOfLanes(di, sum));
  return {scale, -offset * total, scale * static_cast<float>(total)};
}

// The groups of `count` inputs, the last of which may be short.
template <class Dot>
HWY_NOINLINE void RoundRowInputs(const float* HWY_RESTRICT x, int64_t count,
                                 int64_t group, int32_t offset,
                                 uint8_t* HWY_RESTRICT codes,
                                 GroupHead* HWY_RESTRICT heads) {
  const int64_t bytes = group * 4 / Dot::kStepInputs;
  for (; count >= group; count -= group, x += group, codes += bytes) {
    *heads++ = RoundGroupInputs<Dot>(x, group, offset, codes);
  }
  if (count > 0) {
    HWY_ALIGN float part[kMostGroup] = {};
    std::memcpy(part, x, static_cast<size_t>(count) * sizeof(float));
    *heads = RoundGroupInputs<Dot>(part, group, offset, codes);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // TARN_KERNELS_MATMUL_GROUP_INPUTS_INL_H_
