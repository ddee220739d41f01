// Dot products of 8-bit inputs with codes of a panel, four inputs of an output
// at a time: what differs between SIMD targets in the products of groups. All
// are exact in 32-bit integers, so that every way gives the same bits.
//
// A way of computing them (`Dot`) works in steps of kStepInputs inputs:
//   Add(acc, w, x)  acc[n] += sum over the step's inputs of w[n, k] x[k], w a
//                   vector of outputs, x the step's inputs in every lane
//   kShortSteps     0, or how many steps of Add may be summed from zero, in 16
//                   bits, before Widen(acc, sums) adds them to sums of 32 bits
//   StoreInputs(a, b, i, to)  two vectors of rounded inputs, from input i on of
//                   the group at `to`, as Add reads them
// and a stored vector of a panel becomes Parts<Dot>(bits) operands for as many
// steps (Unpack).

#if defined(TARN_KERNELS_MATMUL_GROUP_DOTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_MATMUL_GROUP_DOTS_INL_H_
#undef TARN_KERNELS_MATMUL_GROUP_DOTS_INL_H_
#else
#define TARN_KERNELS_MATMUL_GROUP_DOTS_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/rows-inl.h"

#undef TARN_MULTIPLY_ADD
#undef TARN_HAVE_BYTE_DOT
#undef TARN_HAVE_PAIR_DOT
#if defined(__x86_64__) && HWY_TARGET == HWY_AVX3
#define TARN_HAVE_BYTE_DOT 1
#else
#define TARN_HAVE_BYTE_DOT 0
#endif
#if HWY_ARCH_X86 && HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR
#define TARN_HAVE_PAIR_DOT 1
#else
#define TARN_HAVE_PAIR_DOT 0
#endif

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

using VI = hn::Vec<DI>;

// Sums are added by instructions with their names: GCC 12 moves the sums of
// intrinsics from register to register, loads all inputs first and spills.
#if TARN_HAVE_PAIR_DOT && HWY_MAX_BYTES >= 32
#define TARN_MULTIPLY_ADD(multiply, add, acc, w, x)  \
  do {                                               \
    decltype((acc).raw) products;                    \
    asm(multiply " %3, %2, %1\n\t" add " %1, %0, %0" \
        : "+v"((acc).raw), "=&v"(products)           \
        : "v"((w).raw), "v"((x).raw));               \
  } while (false)
#endif

// acc[n] += w[n, 0] x[n, 0] + w[n, 1] x[n, 1] of 16-bit numbers whose two
// products do not pass 2^31.
HWY_INLINE VI AddPairs(VI acc, VI w, VI x) {
#if TARN_HAVE_PAIR_DOT && HWY_MAX_BYTES >= 32
  TARN_MULTIPLY_ADD("vpmaddwd", "vpaddd", acc, w, x);
  return acc;
#elif TARN_HAVE_PAIR_DOT
  return hn::Add(acc, VI{_mm_madd_epi16(w.raw, x.raw)});
#elif HWY_ARCH_ARM_A64 && HWY_TARGET == HWY_NEON
  const int16x8_t a = vreinterpretq_s16_s32(w.raw);
  const int16x8_t b = vreinterpretq_s16_s32(x.raw);
  return hn::Add(acc, VI{vpaddq_s32(vmull_s16(vget_low_s16(a), vget_low_s16(b)),
                                    vmull_high_s16(a, b))});
#elif HWY_TARGET == HWY_WASM
  return hn::Add(acc, VI{wasm_i32x4_dot_i16x8(w.raw, x.raw)});
#else
  const auto low = [](VI v) HWY_ATTR {
    return hn::ShiftRight<16>(hn::ShiftLeft<16>(v));
  };
  acc = hn::Add(acc, hn::Mul(low(w), low(x)));
  return hn::Add(acc, hn::Mul(hn::ShiftRight<16>(w), hn::ShiftRight<16>(x)));
#endif
}

// Bytes of each 32-bit lane as two 16-bit numbers: bytes 0 and 2, 1 and 3.
HWY_INLINE VI EvenBytes(VI v) { return hn::And(v, hn::Set(DI(), 0x00FF00FF)); }
HWY_INLINE VI OddBytes(VI v) {
#if TARN_HAVE_PAIR_DOT || HWY_TARGET == HWY_WASM
  const hn::Repartition<uint16_t, DF> d16;
  return hn::BitCast(DI(), hn::ShiftRight<8>(hn::BitCast(d16, v)));
#else
  return EvenBytes(hn::ShiftRight<8>(v));
#endif
}

HWY_INLINE void StoreInt8(VI a, VI b, uint8_t* to) {
  const hn::Rebind<int8_t, DI> d8;
  auto* bytes = reinterpret_cast<int8_t*>(to);
  hn::StoreU(hn::DemoteTo(d8, a), d8, bytes);
  hn::StoreU(hn::DemoteTo(d8, b), d8, bytes + hn::Lanes(DI()));
}

// 16-bit products, for any target: steps of inputs k and k + 2, then k + 1 and
// k + 3 (EvenBytes, OddBytes), 4 bytes of inputs a step.
struct PairDot {
  static constexpr int64_t kStepInputs = 2;
  static constexpr int kShortSteps = 0;
  static HWY_INLINE VI Add(VI acc, VI w, VI x) { return AddPairs(acc, w, x); }
  static HWY_INLINE void StoreInputs(VI a, VI b, int64_t i, uint8_t* to) {
#if HWY_TARGET == HWY_SCALAR  // one lane
    for (const VI v : {a, b}) {
      const auto q = static_cast<int16_t>(hn::GetLane(v));
      const int64_t place = i / 4 * 4 + i % 2 * 2 + i % 4 / 2;
      std::memcpy(to + place * 2, &q, sizeof(q));
      ++i;
    }
#else
    // Lanes 0 and 1 of every four become the pairs.
    const hn::Repartition<uint64_t, DF> d64;
    const auto pairs = [&](VI v) HWY_ATTR {
      const VI low = hn::And(v, hn::Set(DI(), 0xFFFF));
      return hn::BitCast(d64,
                         hn::Or(low, hn::ShiftLeft<16>(hn::Shuffle1032(v))));
    };
    const auto both = hn::ConcatEven(d64, pairs(b), pairs(a));
    hn::StoreU(hn::BitCast(DI(), both), DI(),
               reinterpret_cast<int32_t*>(to + i * 2));
#endif
  }
};

#if TARN_HAVE_PAIR_DOT
// Products of codes 0..15 in 16 bits: 8 steps of at most 2 * 15 * 127 each.
struct ShortDot {
  static constexpr int64_t kStepInputs = 4;
  static constexpr int kShortSteps = 8;
  static HWY_INLINE VI Add(VI acc, VI w, VI x) {
#if HWY_MAX_BYTES >= 32
    TARN_MULTIPLY_ADD("vpmaddubsw", "vpaddw", acc, w, x);
    return acc;
#else
    const hn::Repartition<int16_t, DF> d16;
    const VI products = VI{_mm_maddubs_epi16(w.raw, x.raw)};
    return hn::BitCast(
        DI(), hn::Add(hn::BitCast(d16, acc), hn::BitCast(d16, products)));
#endif
  }
  static HWY_INLINE VI Widen(VI acc, VI sums) {
    return AddPairs(acc, sums, hn::Set(DI(), 0x00010001));
  }
  static HWY_INLINE void StoreInputs(VI a, VI b, int64_t i, uint8_t* to) {
    StoreInt8(a, b, to + i);
  }
};
#endif

#if TARN_HAVE_BYTE_DOT
// AVX-512 VNNI, which the target does not include: chosen by the CPU. By its
// name, as GCC 12 copies the accumulators of the intrinsic from register to
// register and spills them.
struct ByteDot {
  static constexpr int64_t kStepInputs = 4;
  static constexpr int kShortSteps = 0;
  static HWY_INLINE VI Add(VI acc, VI w, VI x) {
    asm("vpdpbusd %2, %1, %0" : "+v"(acc.raw) : "v"(w.raw), "v"(x.raw));
    return acc;
  }
  static HWY_INLINE void StoreInputs(VI a, VI b, int64_t i, uint8_t* to) {
    StoreInt8(a, b, to + i);
  }
};
#endif

// Operands of one stored vector.
template <class Dot>
constexpr int Parts(int bits) {
  return (bits == 4 ? 2 : 1) * (Dot::kStepInputs == 2 ? 2 : 1);
}

template <class Dot, int kBits>
HWY_INLINE void Unpack(VI stored, VI* HWY_RESTRICT parts) {
  const auto bytes = [&](VI v, VI* to) HWY_ATTR {
    if constexpr (Dot::kStepInputs == 2) {
      to[0] = EvenBytes(v);
      to[1] = OddBytes(v);
    } else {
      to[0] = v;
    }
  };
  if constexpr (kBits == 8) {
    bytes(stored, parts);
  } else {
    const VI mask = hn::Set(DI(), 0x0F0F0F0F);
    bytes(hn::And(stored, mask), parts);
    bytes(hn::And(hn::ShiftRight<4>(stored), mask), parts + Parts<Dot>(8));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // TARN_KERNELS_MATMUL_GROUP_DOTS_INL_H_
