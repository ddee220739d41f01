// The state of a slice, and how one key enters it: what the forward pass and
// the first half of the gradient share.

#if defined(TARN_KERNELS_AFT_SIMPLE_RECURRENCE_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_AFT_SIMPLE_RECURRENCE_INL_H_
#undef TARN_KERNELS_AFT_SIMPLE_RECURRENCE_INL_H_
#else
#define TARN_KERNELS_AFT_SIMPLE_RECURRENCE_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "kernels/activation/activation-inl.h"
#include "kernels/aft_simple/slices.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using aft_simple::kSliceChannels;
using aft_simple::Rows;
using aft_simple::Slice;

constexpr float kEmpty = -std::numeric_limits<float>::infinity();

// exp(x) for x <= 0, 1 at 0, NaN for NaN. A lane's bits do not depend on the
// other lanes, which ExpNonPositive alone promises with AVX-512 only.
HWY_INLINE VF Decay(VF x) {
#if HWY_TARGET <= HWY_AVX3
  return ExpNonPositive(x);
#else
  return ExpKeepingNaN(x);
#endif
}

// Calls f(i, n) for the slice's vectors, n <= Lanes floats from channel i on.
template <class F>
HWY_INLINE void ForVectors(int64_t channels, const F& f) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
  for (int64_t i = 0; i < channels; i += lanes) {
    f(i, std::min(lanes, channels - i));
  }
}

HWY_INLINE VF LoadSome(const float* p, int64_t n) {
  const DF d;
  if (HWY_LIKELY(n == static_cast<int64_t>(hn::Lanes(d)))) {
    return hn::LoadU(d, p);
  }
  return LoadPart(p, n);
}

HWY_INLINE void StoreSome(VF x, float* p, int64_t n) {
  const DF d;
  if (HWY_LIKELY(n == static_cast<int64_t>(hn::Lanes(d)))) {
    hn::StoreU(x, d, p);
  } else {
    StorePart(x, p, n);
  }
}

// Stays in the L1 cache while a sequence passes. Lanes beyond the channels hold
// the values that zeros would give.
struct Memory {
  HWY_ALIGN float m[kSliceChannels];
  HWY_ALIGN float a[kSliceChannels];
  HWY_ALIGN float b[kSliceChannels];

  explicit Memory(const Slice& s) {
    std::fill_n(m, kSliceChannels, kEmpty);
    std::fill_n(a, kSliceChannels, 0.0f);
    std::fill_n(b, kSliceChannels, 0.0f);
    if (s.state.m == nullptr) return;
    std::copy_n(s.state.m, s.channels, m);
    std::copy_n(s.state.a, s.channels, a);
    std::copy_n(s.state.b, s.channels, b);
  }
};

// Adds key j to the memory. kNote: its number if it is the largest so far.
template <bool kNote>
HWY_INLINE void Absorb(const Slice& s, int64_t j, Memory& memory,
                       int32_t* last) {
  const DF d;
  const DI di;
  const VF one = hn::Set(d, 1.0f), empty = hn::Set(d, kEmpty);
  const float* keys = s.k[j];
  const float* values = s.v[j];
  ForVectors(s.channels, [&](int64_t i, int64_t n) HWY_ATTR {
    const VF k = LoadSome(keys + i, n), v = LoadSome(values + i, n);
    const VF m = hn::Load(d, memory.m + i);
    const VF a = hn::Load(d, memory.a + i), b = hn::Load(d, memory.b + i);
    const VF distance = hn::Sub(k, m);
    const VF factor = Decay(hn::Neg(hn::Abs(distance)));
    const auto higher = hn::Gt(distance, hn::Zero(d));
    const auto skipped = hn::Eq(k, empty);
    // The lower of the two is scaled, the higher one is added as it is.
    const VF new_a = hn::MulAdd(hn::IfThenElse(higher, a, v), factor,
                                hn::IfThenElse(higher, v, a));
    const VF new_b = hn::MulAdd(hn::IfThenElse(higher, b, one), factor,
                                hn::IfThenElse(higher, one, b));
    hn::Store(hn::IfThenElse(skipped, a, new_a), d, memory.a + i);
    hn::Store(hn::IfThenElse(skipped, b, new_b), d, memory.b + i);
    hn::Store(hn::IfThenElse(higher, k, m), d, memory.m + i);
    if constexpr (kNote) {
      const auto noted = hn::Load(di, last + i);
      hn::Store(hn::IfThenElse(hn::RebindMask(di, higher),
                               hn::Set(di, static_cast<int32_t>(j)), noted),
                di, last + i);
    }
  });
}

// a / b, 0 where nothing was read.
HWY_INLINE void Average(const Slice& s, const Memory& memory, float* average) {
  const DF d;
  ForVectors(s.channels, [&](int64_t i, int64_t) HWY_ATTR {
    const VF b = hn::Load(d, memory.b + i);
    const VF y = hn::Div(hn::Load(d, memory.a + i), b);
    hn::StoreU(hn::IfThenZeroElse(hn::Eq(b, hn::Zero(d)), y), d, average + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
