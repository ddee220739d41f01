// A row of scores and what becomes of it: what the step of softmax attention
// and several rows at once share, so that both have the same bits.

#if defined(TARN_KERNELS_SOFTMAX_ATTENTION_SCORE_ROW_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_SOFTMAX_ATTENTION_SCORE_ROW_INL_H_
#undef TARN_KERNELS_SOFTMAX_ATTENTION_SCORE_ROW_INL_H_
#else
#define TARN_KERNELS_SOFTMAX_ATTENTION_SCORE_ROW_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/softmax_attention/cache_rows-inl.h"
#include "kernels/softmax_attention/cap-inl.h"
#include "kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(DF()));

// scores[0, kKeys) for neighbouring keys: as many independent chains.
template <int kKeys, class Rows>
HWY_INLINE void Scores(const float* query, const float* keys, int64_t stride,
                       int64_t d_key, float scale, float* scores) {
  const DF d;
  VF sum[kKeys];
  HWY_UNROLL(4)
  for (int j = 0; j < kKeys; ++j) sum[j] = hn::Zero(d);
  int64_t i = 0;
  for (; i + kLanes <= d_key; i += kLanes) {
    const VF q = hn::LoadU(d, query + i);
    HWY_UNROLL(4)
    for (int j = 0; j < kKeys; ++j) {
      sum[j] = hn::MulAdd(q, Rows::Load(keys + j * stride, i), sum[j]);
    }
  }
  if (i < d_key) {
    const VF q = LoadPart(query + i, d_key - i);
    HWY_UNROLL(4)
    for (int j = 0; j < kKeys; ++j) {
      sum[j] =
          hn::MulAdd(q, Rows::Part(keys + j * stride, i, d_key - i), sum[j]);
    }
  }
  HWY_UNROLL(4)
  for (int j = 0; j < kKeys; ++j) {
    scores[j] = scale * hn::GetLane(hn::SumOfLanes(d, sum[j]));
  }
}

HWY_INLINE float MaxOfRow(const float* x, int64_t n) {
  const DF d;
  VF best = hn::Set(d, x[0]);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    best = hn::Max(best, hn::LoadU(d, x + i));
  float largest = hn::GetLane(hn::MaxOfLanes(d, best));
  for (; i < n; ++i) largest = std::max(largest, x[i]);
  return largest;
}

// x = exp(x - largest); returns the sum. A NaN entry stays NaN and makes the
// sum NaN, whichever entry Max took for the largest.
HWY_INLINE float ExpRow(float* x, int64_t n, float largest) {
  const DF d;
  const VF shift = hn::Set(d, largest);
  VF sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const VF e = ExpKeepingNaN(hn::Sub(hn::LoadU(d, x + i), shift));
    hn::StoreU(e, d, x + i);
    sum = hn::Add(sum, e);
  }
  if (i < n) {
    const VF e =
        KeepFirst(ExpKeepingNaN(hn::Sub(LoadPart(x + i, n - i), shift)), n - i);
    StorePart(e, x + i, n - i);
    sum = hn::Add(sum, e);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// x = cap tanh(x / cap).
static HWY_NOINLINE void CapRow(float* x, int64_t n, float cap) {
  const DF d;
  const VF size = hn::Set(d, cap), inverse = hn::Set(d, 1.0f / cap);
  for (int64_t i = 0; i < n; i += kLanes) {
    const int64_t left = n - i;
    const bool whole = left >= kLanes;
    const VF score = whole ? hn::LoadU(d, x + i) : LoadPart(x + i, left);
    const VF capped = hn::Mul(size, TanhOfScore(hn::Mul(score, inverse)));
    if (whole) {
      hn::StoreU(capped, d, x + i);
    } else {
      StorePart(capped, x + i, left);
    }
  }
}

// What the sink adds to the sum of exp(s_j - largest); makes `largest` the
// maximum with it.
HWY_INLINE float SinkTerm(float sink, float* largest) {
  const DF d;
  *largest = std::max(*largest, sink);
  return hn::GetLane(ExpKeepingNaN(hn::Set(d, sink - *largest)));
}

// Makes exp(s_j - largest) of a row of scores; returns what they are to be
// multiplied with.
HWY_INLINE float SoftmaxOfRow(float* scores, int64_t n, float softcap,
                              const float* sink) {
  if (HWY_UNLIKELY(softcap > 0.0f)) CapRow(scores, n, softcap);
  float largest = MaxOfRow(scores, n), extra = 0.0f;
  if (HWY_UNLIKELY(sink != nullptr)) extra = SinkTerm(*sink, &largest);
  return 1.0f / (ExpRow(scores, n, largest) + extra);
}

// Loads `valid` lanes of a column: all lanes except in the last vector.
template <class Rows>
HWY_INLINE VF LoadColumns(const float* row, int64_t column, int64_t valid) {
  return valid >= kLanes ? Rows::Load(row, column)
                         : Rows::Part(row, column, valid);
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
