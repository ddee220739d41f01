// Sums over the tokens and channels of a chunk whose decay differs by channel
// (GLA, HGRN2, RWKV-6, KDA). The scores
//   P_ij = sum_c q_ic k_jc E_ij,c,   E_ij,c = gamma_{j+1,c} ... gamma_{i,c}
// are no matrix product. With 16 keys in the lanes, one vector per channel
// holds the keys as they have decayed by token i, so that a channel and token
// cost one product and one multiply-add more than without gates.

#if defined(TARN_KERNELS_RECURRENCE_VECTOR_PRODUCTS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_RECURRENCE_VECTOR_PRODUCTS_INL_H_
#undef TARN_KERNELS_RECURRENCE_VECTOR_PRODUCTS_INL_H_
#else
#define TARN_KERNELS_RECURRENCE_VECTOR_PRODUCTS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/recurrence/chunk-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Masks over the lanes of a block: lane == i, lane >= i and lane < i.
struct LaneMasks {
  uint32_t same[16][16] = {}, from[16][16] = {}, before[16][16] = {};
  constexpr LaneMasks() {
    for (int i = 0; i < 16; ++i) {
      for (int lane = 0; lane < 16; ++lane) {
        same[i][lane] = lane == i ? 0xFFFFFFFFu : 0u;
        from[i][lane] = lane >= i ? 0xFFFFFFFFu : 0u;
        before[i][lane] = lane < i ? 0xFFFFFFFFu : 0u;
      }
    }
  }
};
alignas(64) static constexpr LaneMasks kLaneMasks;

HWY_INLINE VF LaneMask(const uint32_t (&masks)[16][16], int64_t i, int v) {
  return hn::BitCast(DF(), hn::LoadU(DU(), masks[i] + v * kLanes));
}

// Rows at once: their sums of one or two sets of scores fill half the
// registers.
constexpr int kScoreSums = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM ? 16 : 8;

// first [i, j] = sum_c x_ic k_jc E_ij,c for j <= i, and with a second set of
// rows the same sums of y, all by rows over i. `past`: the second set reads
// before the decay of its own token, E_{i-1,j}. keys_t [d_key, 16]; kept:
// [d_key, 16], scratch. Entries beyond the diagonal are zero; those of x or y
// that are not read on it are for the caller to clear.
template <bool kSecond, bool kPastFirst, bool kPastSecond>
HWY_MAYBE_UNUSED static HWY_NOINLINE void VectorScores(
    const float* HWY_RESTRICT x, const float* HWY_RESTRICT y, int64_t ld,
    const float* HWY_RESTRICT keys_t, const float* HWY_RESTRICT gamma,
    int64_t d_key, float* HWY_RESTRICT kept, float* first, float* second) {
  const DF d;
  constexpr int64_t C = kRecurrentChunk;
  constexpr int kRows =
      std::max(1, kScoreSums / kBlockVectors / (kSecond ? 2 : 1));
  for (int64_t i = 0; i < C; i += kRows) {
    VF sum[kRows][kBlockVectors], other[kRows][kBlockVectors];
    HWY_UNROLL(16)
    for (int r = 0; r < kRows; ++r) {
      HWY_UNROLL(16)
      for (int v = 0; v < kBlockVectors; ++v) {
        sum[r][v] = other[r][v] = hn::Zero(d);
      }
    }
    for (int64_t c = 0; c < d_key; ++c) {
      VF key[kBlockVectors], decayed[kBlockVectors];
      HWY_UNROLL(16)
      for (int v = 0; v < kBlockVectors; ++v) {
        key[v] = hn::LoadU(d, keys_t + c * C + v * kLanes);
        decayed[v] =
            i == 0 ? hn::Zero(d) : hn::LoadU(d, kept + c * C + v * kLanes);
      }
      HWY_UNROLL(16)
      for (int r = 0; r < kRows; ++r) {
        const int64_t at = (i + r) * ld + c;
        const VF factor = hn::Set(d, gamma[at]);
        const VF a = hn::Set(d, x[at]);
        const VF b = kSecond ? hn::Set(d, y[at]) : a;
        HWY_UNROLL(16)
        for (int v = 0; v < kBlockVectors; ++v) {
          if (kPastFirst) sum[r][v] = hn::MulAdd(a, decayed[v], sum[r][v]);
          if (kSecond && kPastSecond) {
            other[r][v] = hn::MulAdd(b, decayed[v], other[r][v]);
          }
          const VF own = hn::And(LaneMask(kLaneMasks.same, i + r, v), key[v]);
          decayed[v] = hn::MulAdd(decayed[v], factor, own);
          if (!kPastFirst) sum[r][v] = hn::MulAdd(a, decayed[v], sum[r][v]);
          if (kSecond && !kPastSecond) {
            other[r][v] = hn::MulAdd(b, decayed[v], other[r][v]);
          }
        }
      }
      HWY_UNROLL(16)
      for (int v = 0; v < kBlockVectors; ++v) {
        hn::StoreU(decayed[v], d, kept + c * C + v * kLanes);
      }
    }
    HWY_UNROLL(16)
    for (int r = 0; r < kRows; ++r) {
      HWY_UNROLL(16)
      for (int v = 0; v < kBlockVectors; ++v) {
        hn::StoreU(sum[r][v], d, first + (i + r) * C + v * kLanes);
        if (kSecond) {
          hn::StoreU(other[r][v], d, second + (i + r) * C + v * kLanes);
        }
      }
    }
  }
}

// a * weight + sum; with kSkip weights of 0 add nothing, not even a NaN.
template <bool kSkip>
HWY_INLINE VF AddWeighted(VF a, VF weight, VF sum) {
  const VF next = hn::MulAdd(a, weight, sum);
  if (!kSkip) return next;
  return hn::IfThenElse(hn::Eq(weight, hn::Zero(DF())), sum, next);
}

template <bool kSkip>
HWY_MAYBE_UNUSED static HWY_NOINLINE void DecayedKeys(
    const float* HWY_RESTRICT weights_t, const float* HWY_RESTRICT keys,
    const float* HWY_RESTRICT gamma, int64_t ld, int64_t d_key, bool past,
    float* HWY_RESTRICT to) {
  const DF d;
  constexpr int64_t C = kRecurrentChunk;
  const VF one = hn::Set(d, 1.0f);
  const int64_t later = past ? 1 : 0;
  for (int64_t c = 0; c < d_key; ++c) {
    BlockLanes sum(0.0f);
    for (int64_t j = 0; j < C; ++j) {
      const VF factor = hn::Set(d, gamma[j * ld + c]);
      const VF key = hn::Set(d, keys[j * ld + c]);
      HWY_UNROLL(16)
      for (int v = 0; v < kBlockVectors; ++v) {
        // Lanes that end before token j keep their sums.
        const VF masked =
            j + later < C
                ? hn::IfVecThenElse(LaneMask(kLaneMasks.from, j + later, v),
                                    factor, one)
                : one;
        sum.at[v] = AddWeighted<kSkip>(
            key, hn::LoadU(d, weights_t + j * C + v * kLanes),
            hn::Mul(sum.at[v], masked));
      }
    }
    BlockLanes total(to + c * C);
    total.Add(sum);
    total.Store(to + c * C);
  }
}

// to[c, lanes i] += sum_{j <= i} weights_ij E_ij,c keys_jc by Horner's rule:
// weights_t by rows over j. `past`: E_{i-1,j} instead, whose weights are
// strict.
HWY_INLINE void AddDecayedKeys(const float* weights_t, const float* keys,
                               const float* gamma, int64_t ld, int64_t d_key,
                               bool past, float* to, bool finite = true) {
  if (HWY_LIKELY(finite)) {
    return DecayedKeys<false>(weights_t, keys, gamma, ld, d_key, past, to);
  }
  DecayedKeys<true>(weights_t, keys, gamma, ld, d_key, past, to);
}

template <bool kSkip>
HWY_MAYBE_UNUSED static HWY_NOINLINE void DecayedQueries(
    const float* HWY_RESTRICT weights, const float* HWY_RESTRICT x, bool past_x,
    const float* HWY_RESTRICT more, const float* HWY_RESTRICT y, bool past_y,
    const float* HWY_RESTRICT gamma, int64_t ld, int64_t d_key,
    float* HWY_RESTRICT to) {
  const DF d;
  constexpr int64_t C = kRecurrentChunk;
  const VF one = hn::Set(d, 1.0f);
  for (int64_t c = 0; c < d_key; ++c) {
    BlockLanes sum(0.0f);
    for (int64_t i = C - 1; i >= 0; --i) {
      const VF factor = hn::Set(d, gamma[i * ld + c]);
      const VF a = hn::Set(d, x[i * ld + c]);
      const auto add = [&](VF scalar, const float* from) HWY_ATTR {
        HWY_UNROLL(16)
        for (int v = 0; v < kBlockVectors; ++v) {
          sum.at[v] = AddWeighted<kSkip>(
              scalar, hn::LoadU(d, from + i * C + v * kLanes), sum.at[v]);
        }
      };
      if (!past_x) add(a, weights);
      if (y != nullptr && !past_y) add(hn::Set(d, y[i * ld + c]), more);
      HWY_UNROLL(16)
      for (int v = 0; v < kBlockVectors; ++v) {
        sum.at[v] = hn::Mul(
            sum.at[v],
            hn::IfVecThenElse(LaneMask(kLaneMasks.before, i, v), factor, one));
      }
      if (past_x) add(a, weights);
      if (y != nullptr && past_y) add(hn::Set(d, y[i * ld + c]), more);
    }
    BlockLanes total(to + c * C);
    total.Add(sum);
    total.Store(to + c * C);
  }
}

// to[c, lanes j] += sum_{i >= j} E_ij,c (weights_ij x_ic + more_ij y_ic), both
// by rows over i; y null: without the second sum. past_x, past_y: E_{i-1,j}.
HWY_INLINE void AddDecayedQueries(const float* weights, const float* x,
                                  bool past_x, const float* more,
                                  const float* y, bool past_y,
                                  const float* gamma, int64_t ld, int64_t d_key,
                                  float* to, bool finite = true) {
  if (HWY_LIKELY(finite)) {
    return DecayedQueries<false>(weights, x, past_x, more, y, past_y, gamma, ld,
                                 d_key, to);
  }
  DecayedQueries<true>(weights, x, past_x, more, y, past_y, gamma, ld, d_key,
                       to);
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
