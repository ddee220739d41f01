// Two vectors of entries at a time, in an order in which 16-bit numbers are
// widened and rounded without moving a lane.

#if defined(TARN_KERNELS_ENTRY_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_ENTRY_PAIRS_INL_H_
#undef TARN_KERNELS_ENTRY_PAIRS_INL_H_
#else
#define TARN_KERNELS_ENTRY_PAIRS_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/pieces-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Two adjacent vectors of entries, in an order of the dtype: of
// bfloat16 the even entries and the odd ones, which are the halves of 32 bits
// and need no lane to move. Entries are read and written in the same order.
struct EntryPair {
  VF a, b;
};

template <DType kType>
HWY_INLINE EntryPair LoadEntryPair(const char* from) {
  if constexpr (kType == DType::kBF16) {
    const DF d;
    const DU du;
    const auto both = hn::LoadU(du, reinterpret_cast<const uint32_t*>(from));
    return {hn::BitCast(d, hn::ShiftLeft<16>(both)),
            hn::BitCast(d, hn::And(both, hn::Set(du, 0xFFFF0000u)))};
  } else {
    const size_t bytes = hn::Lanes(DF()) * DTypeBytes(kType);
    return {LoadWhole<kType>(from), LoadWhole<kType>(from + bytes)};
  }
}

// Rounded to nearest even in the upper half, as NarrowBF16 does. kAnyNaN: also
// NaNs with bits in the lower half, which a sum would carry out of the number.
template <bool kAnyNaN>
HWY_INLINE hn::Vec<DU> RoundedBF16(VF x) {
  const DU du;
  const auto bits = hn::BitCast(du, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFFu)));
  if constexpr (!kAnyNaN) return rounded;
  const auto quiet = hn::Or(bits, hn::Set(du, 0x00400000u));
  return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(x)), quiet, rounded);
}

// kAnyNaN may be false where every NaN comes from numbers of 16 bits through
// sums and products.
template <DType kType, bool kAnyNaN = true>
HWY_INLINE void StoreEntryPair(const EntryPair& pair, char* to) {
  if constexpr (kType == DType::kBF16) {
    const DU du;
    const auto low = hn::ShiftRight<16>(RoundedBF16<kAnyNaN>(pair.a));
    const auto high =
        hn::And(RoundedBF16<kAnyNaN>(pair.b), hn::Set(du, 0xFFFF0000u));
    hn::StoreU(hn::Or(low, high), du, reinterpret_cast<uint32_t*>(to));
  } else {
    const size_t bytes = hn::Lanes(DF()) * DTypeBytes(kType);
    StoreWhole<kType>(pair.a, to);
    StoreWhole<kType>(pair.b, to + bytes);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
