// The factors of one block of dropout in registers. See dropout.h.

#if defined(TARN_KERNELS_DROPOUT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_DROPOUT_INL_H_
#undef TARN_KERNELS_DROPOUT_INL_H_
#else
#define TARN_KERNELS_DROPOUT_INL_H_
#endif

#include <cstdint>

#include "core/rng.h"
#include "hwy/highway.h"
#include "kernels/dropout/dropout.h"
#include "kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR

// A vector of one lane has no halves to multiply: takes counters one by one.
HWY_INLINE void BlockScales(const DropoutKey& key, int64_t block,
                            float* HWY_RESTRICT scales) {
  for (int64_t l = 0; l < 16; ++l) {
    const auto words =
        Philox(key.seed, /*stream=*/0, static_cast<uint64_t>(block * 16 + l));
    for (int64_t half = 0; half < 8; ++half) {
      const uint32_t bits = words[half / 2] >> (half % 2 * 16) & 0xFFFFu;
      scales[half * 16 + l] =
          static_cast<int32_t>(bits) < key.threshold ? 0.0f : key.scale;
    }
  }
}

#else

using DU64 = hn::Repartition<uint64_t, DF>;
using VU = hn::Vec<DU>;

// Four words of Philox, one counter in the low half of each 64-bit lane; the
// high halves hold what the products left there and are never read.
struct PhiloxWords {
  VU x0, x1, x2, x3;
};

HWY_INLINE VU HighHalf(VU product) {
  return hn::BitCast(DU(), hn::ShiftRight<32>(hn::BitCast(DU64(), product)));
}

// The low halves of `even` and, above them, those of `odd`.
HWY_INLINE VU JoinHalves(VU even, VU odd) {
  const DU du;
  const VU up = hn::BitCast(du, hn::ShiftLeft<32>(hn::BitCast(DU64(), odd)));
  return hn::OddEven(up, even);
}

// Constants of Salmon et al. 2011, as in core/rng.cc.
HWY_INLINE PhiloxWords PhiloxRounds(uint64_t seed, PhiloxWords w) {
  const DU du;
  const VU multiplier0 = hn::Set(du, 0xD2511F53u);
  const VU multiplier1 = hn::Set(du, 0xCD9E8D57u);
  uint32_t key0 = static_cast<uint32_t>(seed);
  uint32_t key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const VU product0 = hn::BitCast(du, hn::MulEven(w.x0, multiplier0));
    const VU product1 = hn::BitCast(du, hn::MulEven(w.x2, multiplier1));
    w.x0 = hn::Xor(hn::Xor(HighHalf(product1), w.x1), hn::Set(du, key0));
    w.x1 = product1;
    w.x2 = hn::Xor(hn::Xor(HighHalf(product0), w.x3), hn::Set(du, key1));
    w.x3 = product0;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return w;
}

// Factors of one word of a vector of counters: its low halves and, 16 elements
// on, its high halves.
HWY_INLINE void StoreScales(const DropoutKey& key, VU bits, float* scales) {
  const DF d;
  const DI di;
  const DU du;
  const auto threshold = hn::Set(di, key.threshold);
  const VF scale = hn::Set(d, key.scale);
  const auto low = hn::BitCast(di, hn::And(bits, hn::Set(du, 0xFFFFu)));
  const auto high = hn::BitCast(di, hn::ShiftRight<16>(bits));
  const auto dropped_low = hn::RebindMask(d, hn::Lt(low, threshold));
  const auto dropped_high = hn::RebindMask(d, hn::Lt(high, threshold));
  hn::StoreU(hn::IfThenZeroElse(dropped_low, scale), d, scales);
  hn::StoreU(hn::IfThenZeroElse(dropped_high, scale), d, scales + 16);
}

// scales[0, 128): the factors of block `block` (numbered through all rows).
HWY_INLINE void BlockScales(const DropoutKey& key, int64_t block,
                            float* HWY_RESTRICT scales) {
  const DU du;
  const uint64_t first = static_cast<uint64_t>(block) * 16;
  const int lanes = static_cast<int>(hn::Lanes(du));
  const VU high = hn::Set(du, static_cast<uint32_t>(first >> 32));
  const VU zero = hn::Zero(du);
  for (int part = 0; part < 16; part += lanes) {
    // Lane l holds counter first + part + l; even ones are drawn where they
    // stand, odd ones after a shift into the low halves.
    const VU counters = hn::Add(
        hn::Set(du, static_cast<uint32_t>(first) + part), hn::Iota(du, 0));
    const PhiloxWords even =
        PhiloxRounds(key.seed, {counters, high, zero, zero});
    const PhiloxWords odd =
        PhiloxRounds(key.seed, {HighHalf(counters), high, zero, zero});
    StoreScales(key, JoinHalves(even.x0, odd.x0), scales + part);
    StoreScales(key, JoinHalves(even.x1, odd.x1), scales + 32 + part);
    StoreScales(key, JoinHalves(even.x2, odd.x2), scales + 64 + part);
    StoreScales(key, JoinHalves(even.x3, odd.x3), scales + 96 + part);
  }
}

#endif  // HWY_TARGET == HWY_SCALAR

// Calls f(i, n, scale) for the whole vectors of a row (n = lanes) and its tail
// (n < lanes); scale is the vector of factors, ones where nothing drops.
template <class F>
HWY_INLINE void ForEachVector(const DropoutKey& key, int64_t row, int64_t width,
                              const F& f) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  if (!key.active()) {
    const VF one = hn::Set(d, 1.0f);
    int64_t i = 0;
    for (; i + lanes <= width; i += lanes) f(i, lanes, one);
    if (i < width) f(i, width - i, one);
    return;
  }
  HWY_ALIGN float scales[kDropoutBlock];
  const int64_t blocks = (width + kDropoutBlock - 1) / kDropoutBlock;
  for (int64_t block = 0; block < blocks; ++block) {
    BlockScales(key, (key.first_row + row) * blocks + block, scales);
    const int64_t begin = block * kDropoutBlock;
    const int64_t end =
        width - begin < kDropoutBlock ? width : begin + kDropoutBlock;
    int64_t i = begin;
    for (; i + lanes <= end; i += lanes) {
      f(i, lanes, hn::Load(d, scales + (i - begin)));
    }
    if (i < end) f(i, end - i, hn::Load(d, scales + (i - begin)));
  }
}

// The first n floats of a row from p on, n = lanes or fewer; zeros after them.
HWY_INLINE VF LoadN(const float* p, int64_t n) {
  const DF d;
  if (HWY_LIKELY(n == static_cast<int64_t>(hn::Lanes(d)))) {
    return hn::LoadU(d, p);
  }
  return LoadPart(p, n);
}

HWY_INLINE void StoreN(VF x, float* p, int64_t n) {
  const DF d;
  if (HWY_LIKELY(n == static_cast<int64_t>(hn::Lanes(d)))) {
    hn::StoreU(x, d, p);
  } else {
    StorePart(x, p, n);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
