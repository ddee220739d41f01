// What products of groups share, whatever number of rows: the kernel's
// constants, loads, and how the sums of a group become part of an output.

#if defined(TARN_KERNELS_MATMUL_GROUP_TERMS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_MATMUL_GROUP_TERMS_INL_H_
#undef TARN_KERNELS_MATMUL_GROUP_TERMS_INL_H_
#else
#define TARN_KERNELS_MATMUL_GROUP_TERMS_INL_H_
#endif

#include <cmath>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/matmul/few_rows-inl.h"
#include "kernels/matmul/formats/group_inputs-inl.h"
#include "kernels/matmul/formats/group_layout.h"
#include "kernels/matmul/tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

constexpr int64_t kBlockInputs = kMostGroup;
constexpr int64_t kLeastGroup = 32;

template <class DotOf, int kBitsOf, bool kMinimumOf>
struct GroupKernel {
  using Dot = DotOf;
  static constexpr int kBits = kBitsOf;
  static constexpr bool kMinimum = kMinimumOf;
  static constexpr int32_t kOffset =
      kBits == 8 ? kByteOffset : (kMinimum ? 0 : 8);
  static constexpr int kParts = Parts<Dot>(kBits);
  // Rows up to which unpacking a group for every tile is faster than once.
  static constexpr int64_t kFew = kBits == 8 ? kFewRows : kFewRows / 2;
  // Bytes of `inputs` inputs as Dot reads them.
  static constexpr int64_t InputBytes(int64_t inputs) {
    return inputs * 4 / Dot::kStepInputs;
  }
};

// a b + c with one rounding on every target.
HWY_INLINE VF FusedMulAdd(VF a, VF b, VF c) {
#if HWY_NATIVE_FMA
  return hn::MulAdd(a, b, c);
#else
  const DF d;
  HWY_ALIGN float at[3][HWY_MAX_BYTES / sizeof(float)];
  hn::Store(a, d, at[0]);
  hn::Store(b, d, at[1]);
  hn::Store(c, d, at[2]);
  for (size_t i = 0; i < hn::Lanes(d); ++i) {
    at[2][i] = std::fma(at[0][i], at[1][i], at[2][i]);
  }
  return hn::Load(d, at[2]);
#endif
}

HWY_INLINE VF LoadScales(const uint8_t* from) {
  const DF d;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  const hn::Rebind<hwy::float16_t, DF> d16;
  const auto* halves = reinterpret_cast<const hwy::float16_t*>(from);
  return hn::PromoteTo(d, hn::LoadU(d16, halves));
#else
  return LoadVector<DType::kF16>(d, from);
#endif
}

HWY_INLINE VI LoadCodes(const uint8_t* from) {
  return hn::LoadU(DI(), reinterpret_cast<const int32_t*>(from));
}
// One step of inputs in every lane.
HWY_INLINE VI SetStep(const uint8_t* from) {
  int32_t step;
  std::memcpy(&step, from, sizeof(step));
  return hn::Set(DI(), step);
}

// Panels whose products share the rounding of the inputs: all of a task where
// `rounded` inputs hold a row, and otherwise as many as sums are kept for.
HWY_INLINE int64_t PanelsAtOnce(const PanelTask& task, int64_t rounded) {
  return task.w->inputs() <= rounded ? task.panel_end - task.panel_begin
                                     : kPanelsTogether;
}

HWY_INLINE void SetRows(const float* HWY_RESTRICT bias, int64_t rows,
                        float* HWY_RESTRICT c) {
  for (int64_t r = 0; r < rows; ++r) {
    std::memcpy(c + r * kPanel, bias, kPanel * sizeof(float));
  }
}

// Rows of inputs, rounded.
struct RoundedRows {
  const uint8_t* codes;
  int64_t stride;  // bytes of codes from row to row
  const GroupHead* heads;
  int64_t head_stride;

  HWY_INLINE RoundedRows From(int64_t row) const {
    return {codes + row * stride, stride, heads + row * head_stride,
            head_stride};
  }
};

// acc[r][v] = each row's start + what add(begin, end, sums) adds to sums in
// `stripes` stripes of kSteps steps, in 16 bits as far as Dot sums in these.
template <class K, int kRows, int kVectors, int kSteps, class F>
HWY_INLINE void SumGroup(const RoundedRows x, int64_t stripes, const F& add,
                         VI (&acc)[kRows][kVectors]) {
  using Dot = typename K::Dot;
  const DI di;
  HWY_UNROLL(6)
  for (int r = 0; r < kRows; ++r) {
    const VI start = hn::Set(di, x.heads[r * x.head_stride].start);
    HWY_UNROLL(8)
    for (int v = 0; v < kVectors; ++v) acc[r][v] = start;
  }
  if constexpr (Dot::kShortSteps == 0) {
    add(0, stripes, acc);
  } else {
    // The first sums apart: a group of 32 then has no others to keep.
    constexpr int64_t kEach = Dot::kShortSteps / kSteps;
    const auto add_short = [&](int64_t begin) HWY_ATTR {
      VI sums[kRows][kVectors];
      HWY_UNROLL(6)
      for (int r = 0; r < kRows; ++r) {
        HWY_UNROLL(8)
        for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::Zero(di);
      }
      add(begin, begin + kEach, sums);
      HWY_UNROLL(6)
      for (int r = 0; r < kRows; ++r) {
        HWY_UNROLL(8)
        for (int v = 0; v < kVectors; ++v) {
          acc[r][v] = Dot::Widen(acc[r][v], sums[r][v]);
        }
      }
    };
    add_short(0);
    for (int64_t s = kEach; s < stripes; s += kEach) add_short(s);
  }
}

// c [kRows][kVectors vectors], rows kPanel apart, += the sums of a group in the
// scales of its vectors, scale(v) and minimum(v), and of the rows.
template <class K, int kRows, int kVectors, class Scale, class Minimum>
HWY_INLINE void AddGroup(const RoundedRows x, VI (&acc)[kRows][kVectors],
                         const Scale& scale, const Minimum& minimum,
                         float* HWY_RESTRICT c) {
  const DF d;
  HWY_UNROLL(8)
  for (int v = 0; v < kVectors; ++v) {
    const VF by = scale(v);
    HWY_UNROLL(6)
    for (int r = 0; r < kRows; ++r) {
      const GroupHead& head = x.heads[r * x.head_stride];
      float* to = c + r * kPanel + v * kLanes;
      VF y = FusedMulAdd(hn::Mul(by, hn::Set(d, head.scale)),
                         hn::ConvertTo(d, acc[r][v]), hn::LoadU(d, to));
      if constexpr (K::kMinimum) {
        y = FusedMulAdd(minimum(v), hn::Set(d, head.sum), y);
      }
      hn::StoreU(y, d, to);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // TARN_KERNELS_MATMUL_GROUP_TERMS_INL_H_
