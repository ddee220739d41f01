// Rows in and out of kernels: widening loads, rounding stores, feature maps.
// Scratch rows are float32, padded with zeros to a multiple of kRowPad, so that
// no kernel has a tail.

#if defined(TARN_KERNELS_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_ROWS_INL_H_
#undef TARN_KERNELS_ROWS_INL_H_
#else
#define TARN_KERNELS_ROWS_INL_H_
#endif

#include <cstdint>
#include <cstring>
#include <iterator>
#include <type_traits>

#include "core/dtype.h"
#include "core/feature_map.h"
#include "core/half.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "kernels/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;
using DI = hn::RebindToSigned<DF>;
using DU = hn::RebindToUnsigned<DF>;
using DU16 = hn::Rebind<uint16_t, DF>;

// ---- 16-bit floats, as integers: exact widening, round to nearest even.

HWY_INLINE VF WidenBF16(DF d, hn::Vec<DU16> bits) {
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(DU(), bits)));
}

// The exponent is rebiased by a product with 2^112, which is exact and handles
// subnormals; Inf and NaN get the largest exponent back.
HWY_INLINE VF WidenF16(DF d, hn::Vec<DU16> bits) {
  const DU du;
  const auto h = hn::PromoteTo(du, bits);
  const auto magnitude = hn::ShiftLeft<13>(hn::And(h, hn::Set(du, 0x7FFFu)));
  auto wide = hn::Mul(hn::BitCast(d, magnitude),
                      hn::BitCast(d, hn::Set(du, 0x77800000u)));
  const auto special =
      hn::Gt(hn::BitCast(DI(), hn::And(h, hn::Set(du, 0x7FFFu))),
             hn::Set(DI(), 0x7BFF));
  wide = hn::IfThenElse(
      hn::RebindMask(d, special),
      hn::BitCast(d, hn::Or(magnitude, hn::Set(du, 0x7F800000u))), wide);
  const auto sign = hn::ShiftLeft<16>(hn::And(h, hn::Set(du, 0x8000u)));
  return hn::Or(wide, hn::BitCast(d, sign));
}

HWY_INLINE hn::Vec<DU16> NarrowBF16(DF d, VF x) {
  const DU du;
  const DI di;
  const auto bits = hn::BitCast(du, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded =
      hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFFu))));
  // A NaN whose payload is in the low half must stay a NaN.
  const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(du, 0x0040u));
  const auto chosen =
      hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(x)), quiet, rounded);
  (void)d;
  return hn::DemoteTo(DU16(), hn::BitCast(di, chosen));
}

HWY_INLINE hn::Vec<DU16> NarrowF16(DF d, VF x) {
  const DU du;
  const DI di;
  const auto bits = hn::BitCast(du, x);
  const auto sign = hn::And(bits, hn::Set(du, 0x80000000u));
  const auto magnitude = hn::Xor(bits, sign);
  const auto m = hn::BitCast(di, magnitude);
  // Normal: rebias the exponent by -112 and round the 13 dropped bits to even.
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1u));
  auto half =
      hn::ShiftRight<13>(hn::Add(hn::Sub(magnitude, hn::Set(du, 0x38000000u)),
                                 hn::Add(odd, hn::Set(du, 0xFFFu))));
  // Subnormal (|x| < 2^-14): adding 0.5 makes the FPU round at bit 2^-24.
  const auto small = hn::Sub(
      hn::BitCast(du, hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5f))),
      hn::Set(du, 0x3F000000u));
  half = hn::IfThenElse(hn::RebindMask(du, hn::Lt(m, hn::Set(di, 0x38800000))),
                        small, half);
  // 65520 and above round to infinity; NaN stays NaN.
  half = hn::IfThenElse(hn::RebindMask(du, hn::Gt(m, hn::Set(di, 0x477FEFFF))),
                        hn::Set(du, 0x7C00u), half);
  half = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(x)), hn::Set(du, 0x7E00u),
                        half);
  const auto with_sign = hn::Or(half, hn::ShiftRight<16>(sign));
  return hn::DemoteTo(DU16(), hn::BitCast(di, with_sign));
}

template <DType kType>
HWY_INLINE VF LoadVector(DF d, const void* p) {
  if constexpr (kType == DType::kF32) {
    return hn::LoadU(d, static_cast<const float*>(p));
  } else {
    const auto bits = hn::LoadU(DU16(), static_cast<const uint16_t*>(p));
    if constexpr (kType == DType::kBF16) return WidenBF16(d, bits);
    return WidenF16(d, bits);
  }
}

template <DType kType>
HWY_INLINE void StoreVector(DF d, VF x, void* p) {
  if constexpr (kType == DType::kF32) {
    hn::StoreU(x, d, static_cast<float*>(p));
  } else if constexpr (kType == DType::kBF16) {
    hn::StoreU(NarrowBF16(d, x), DU16(), static_cast<uint16_t*>(p));
  } else {
    hn::StoreU(NarrowF16(d, x), DU16(), static_cast<uint16_t*>(p));
  }
}

// dst[0, PadRow(n)) = f(src[0, n)), zeros after n. f maps vectors; lanes past n
// are cleared after f. Never reads past src[n).
template <DType kType, class F>
HWY_INLINE void MapRow(const void* src, int64_t n, float* HWY_RESTRICT dst,
                       const F& f) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t bytes = static_cast<int64_t>(DTypeBytes(kType));
  const char* from = static_cast<const char*>(src);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(f(LoadVector<kType>(d, from + i * bytes)), d, dst + i);
  }
  const int64_t padded = PadRow(n);
  if (i < n) {
    alignas(64) char tail[kRowPad * 4] = {0};
    std::memcpy(tail, from + i * bytes, static_cast<size_t>((n - i) * bytes));
    const VF x = f(LoadVector<kType>(d, tail));
    hn::StoreU(hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(n - i)), x),
               d, dst + i);
    i += lanes;
  }
  for (; i < padded; i += lanes) hn::StoreU(hn::Zero(d), d, dst + i);
}

template <class F>
HWY_INLINE void MapRow(DType dtype, const void* src, int64_t n, float* dst,
                       const F& f) {
  switch (dtype) {
    case DType::kF32:
      return MapRow<DType::kF32>(src, n, dst, f);
    case DType::kBF16:
      return MapRow<DType::kBF16>(src, n, dst, f);
    case DType::kF16:
      return MapRow<DType::kF16>(src, n, dst, f);
  }
}

HWY_INLINE void LoadRow(DType dtype, const void* src, int64_t n, float* dst) {
  MapRow(dtype, src, n, dst, [](VF x) HWY_ATTR { return x; });
}

// One number. LoadRow would store it alone and read a whole vector back, which
// waits until the store has left the core.
HWY_INLINE float LoadNumber(DType dtype, const void* src) {
  if (dtype == DType::kF32) {
    float x;
    std::memcpy(&x, src, sizeof(x));
    return x;
  }
  uint16_t half;
  std::memcpy(&half, src, sizeof(half));
  return dtype == DType::kBF16 ? BF16ToF32(half) : F16ToF32(half);
}

template <DType kType>
HWY_INLINE void StoreRow(const float* HWY_RESTRICT src, int64_t n, void* dst) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t bytes = static_cast<int64_t>(DTypeBytes(kType));
  char* to = static_cast<char*>(dst);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    StoreVector<kType>(d, hn::LoadU(d, src + i), to + i * bytes);
  }
  if (i < n) {
    alignas(64) char tail[kRowPad * 4];
    StoreVector<kType>(d, hn::LoadU(d, src + i), tail);
    std::memcpy(to + i * bytes, tail, static_cast<size_t>((n - i) * bytes));
  }
}

// src is a padded scratch row.
HWY_INLINE void StoreRow(DType dtype, const float* src, int64_t n, void* dst) {
  switch (dtype) {
    case DType::kF32:
      return StoreRow<DType::kF32>(src, n, dst);
    case DType::kBF16:
      return StoreRow<DType::kBF16>(src, n, dst);
    case DType::kF16:
      return StoreRow<DType::kF16>(src, n, dst);
  }
}

// ---- Feature maps.

// exp(x) = p 2^n for |x| <= 104: x = n ln 2 + r, |r| <= ln 2 / 2, and a
// polynomial p for e^r (minimax in the relative error, 0x1.8p-24); n comes from
// adding 1.5 * 2^23, whose last bits, those of `shifted`, then hold it.
struct ScaledExp {
  VF p, n, shifted;
};

HWY_INLINE ScaledExp ScaledExpOf(VF x) {
  const DF d;
  const VF magic = hn::Set(d, 12582912.0f);
  const VF shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), magic);
  const VF n = hn::Sub(shifted, magic);
  // ln 2 in two parts, the first short: n times it is exact without FMA too.
  VF r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  r = hn::MulAdd(n, hn::Set(d, 2.12194440e-4f), r);
  VF p = hn::Set(d, 0x1.0fa7c6p-7f);
  p = hn::MulAdd(p, r, hn::Set(d, 0x1.573acep-5f));
  p = hn::MulAdd(p, r, hn::Set(d, 0x1.555a6ep-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 0x1.fffdc4p-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 0x1.fffff6p-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  return {p, n, shifted};
}

// exp(x) to 2 ulp for |x| <= 87: n goes into the exponent.
HWY_INLINE VF ExpWithin(VF x) {
  const DF d;
  const DI di;
  const ScaledExp e = ScaledExpOf(x);
  return hn::BitCast(d, hn::Add(hn::BitCast(di, e.p),
                                hn::ShiftLeft<23>(hn::BitCast(di, e.shifted))));
}

// exp(x) for x <= 0 to 2 ulp; 1 at 0, 0 below -104, NaN for NaN.
HWY_INLINE VF ExpNonPositive(VF x) {
  const DF d;
#if HWY_TARGET <= HWY_AVX3
  x = hn::Max(hn::Set(d, -105.0f), x);  // keeps NaN: the second operand wins
  const ScaledExp e = ScaledExpOf(x);
  return VF{
      _mm512_scalef_ps(e.p.raw, e.n.raw)};  // right for subnormals as well
#else
  if (HWY_UNLIKELY(!hn::AllTrue(d, hn::Ge(x, hn::Set(d, -87.0f))))) {
    return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, x));
  }
  return ExpWithin(x);
#endif
}

// phi(x) = x + 1 for x > 0, exp(x) otherwise, as max(x, 0) + exp(min(x, 0)):
// one of the two terms is exactly 0 or 1. Never (exp(x) - 1) + 1, which
// cancels. NaN stays NaN.
HWY_INLINE VF Elu1(VF x) {
  const DF d;
  const VF zero = hn::Zero(d);
#if HWY_TARGET <= HWY_SSE4 && HWY_ARCH_X86
  // If one operand is NaN, Max and Min give the second operand.
  return hn::Add(hn::Max(zero, x), ExpNonPositive(hn::Min(zero, x)));
#else
  const auto positive = hn::Gt(x, zero);
  const VF small = ExpNonPositive(hn::IfThenZeroElse(positive, x));
  return hn::IfThenElse(positive, hn::Add(x, hn::Set(d, 1.0f)), small);
#endif
}

// max(x, 0). NaN stays NaN, which a plain maximum does not promise.
HWY_INLINE VF PositivePart(VF x) {
  return hn::IfThenZeroElse(hn::Le(x, hn::Zero(DF())), x);
}

// log(1 + exp(x)) as max(x, 0) + log1p(exp(-|x|)), which neither overflows nor
// cancels. NaN stays NaN.
HWY_INLINE VF Softplus(VF x) {
  const DF d;
  const VF small = ExpNonPositive(hn::Neg(hn::Abs(x)));
  return hn::Add(PositivePart(x), hn::Log1p(d, small));
}

// phi(x) of one entry. A map known at compile time leaves no branch in a loop.
template <FeatureMap kMap>
HWY_INLINE VF Feature(VF x) {
  static_assert(IsElementwise(kMap));
  if constexpr (kMap == FeatureMap::kElu1) {
    return Elu1(x);
  } else if constexpr (kMap == FeatureMap::kRelu) {
    return PositivePart(x);
  } else if constexpr (kMap == FeatureMap::kRelu2) {
    const VF positive = PositivePart(x);
    return hn::Mul(positive, positive);
  } else if constexpr (kMap == FeatureMap::kSoftplus) {
    return Softplus(x);
  } else {
    static_assert(kMap == FeatureMap::kIdentity, "a map without its value");
    return x;
  }
}

// phi'(x) times a gradient, from phi(x). elu+1: min(phi, 1). relu: 1 or 0.
// relu2: 2 max(x, 0) = 2 sqrt(phi), exact to an ulp where phi is a normal
// number. softplus: 1 / (1 + exp(-x)) = 1 - exp(-phi).
template <FeatureMap kMap>
HWY_INLINE VF FeatureSlopeTimes(VF features, VF gradient) {
  static_assert(IsElementwise(kMap));
  const DF d;
  if constexpr (kMap == FeatureMap::kElu1) {
    return hn::Mul(gradient, hn::Min(features, hn::Set(d, 1.0f)));
  } else if constexpr (kMap == FeatureMap::kRelu) {
    return hn::IfThenZeroElse(hn::Le(features, hn::Zero(d)), gradient);
  } else if constexpr (kMap == FeatureMap::kRelu2) {
    return hn::Mul(hn::Mul(hn::Set(d, 2.0f), hn::Sqrt(features)), gradient);
  } else if constexpr (kMap == FeatureMap::kSoftplus) {
    return hn::Mul(hn::Neg(hn::Expm1(d, hn::Neg(features))), gradient);
  } else {
    static_assert(kMap == FeatureMap::kIdentity, "a map without its slope");
    return gradient;
  }
}

// f(integral_constant<FeatureMap>) for a map known at run time, from the
// elementwise rows of the table. Other maps never reach a kernel: the checks
// refuse them.
template <size_t kRow = 0, class F>
HWY_INLINE void WithFeatureMap(FeatureMap map, const F& f) {
  if constexpr (kRow < std::size(kFeatureMaps)) {
    constexpr FeatureMap kMap = kFeatureMaps[kRow].map;
    if constexpr (kFeatureMaps[kRow].elementwise) {
      if (map == kMap) return f(std::integral_constant<FeatureMap, kMap>());
    }
    WithFeatureMap<kRow + 1>(map, f);
  }
}

// ---- Row reductions over padded rows.

HWY_INLINE float RowDot(const float* a, const float* b, int64_t padded) {
  const DF d;
  VF sum = hn::Zero(d);
  for (int64_t i = 0; i < padded; i += static_cast<int64_t>(hn::Lanes(d))) {
    sum = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), sum);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// Largest absolute value; NaN entries are ignored.
HWY_INLINE float RowMaxAbs(const float* row, int64_t padded) {
  const DF d;
  VF best = hn::Zero(d);
  for (int64_t i = 0; i < padded; i += static_cast<int64_t>(hn::Lanes(d))) {
    const VF x = hn::Abs(hn::LoadU(d, row + i));
    best = hn::IfThenElse(hn::Gt(x, best), x, best);
  }
  return hn::GetLane(hn::MaxOfLanes(d, best));
}

HWY_INLINE void ScaleRow(float* row, int64_t padded, float factor) {
  const DF d;
  const VF f = hn::Set(d, factor);
  for (int64_t i = 0; i < padded; i += static_cast<int64_t>(hn::Lanes(d))) {
    hn::StoreU(hn::Mul(hn::LoadU(d, row + i), f), d, row + i);
  }
}

HWY_INLINE void AddRow(const float* x, int64_t padded, float* y) {
  const DF d;
  for (int64_t i = 0; i < padded; i += static_cast<int64_t>(hn::Lanes(d))) {
    hn::StoreU(hn::Add(hn::LoadU(d, y + i), hn::LoadU(d, x + i)), d, y + i);
  }
}

// Power of two that brings `largest` into [1, 2); 2^126 for subnormals, 1 for
// zero, infinity and NaN.
HWY_INLINE float PowerOfTwoScale(float largest) {
  uint32_t bits;
  std::memcpy(&bits, &largest, 4);
  const uint32_t exponent = (bits >> 23) & 0xFF;
  if (largest == 0.0f || exponent == 255) return 1.0f;
  uint32_t scale_bits = exponent <= 1 ? 253u : 254u - exponent;
  if (scale_bits == 0) scale_bits = 1;  // largest >= 2^127
  scale_bits <<= 23;
  float scale;
  std::memcpy(&scale, &scale_bits, 4);
  return scale;
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
