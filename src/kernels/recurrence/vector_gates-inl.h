// Chunks whose decay differs by channel: their factors, and the preparation of
// their products, whose sums vector_products-inl.h takes.

#if defined(TARN_KERNELS_RECURRENCE_VECTOR_GATES_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_RECURRENCE_VECTOR_GATES_INL_H_
#undef TARN_KERNELS_RECURRENCE_VECTOR_GATES_INL_H_
#else
#define TARN_KERNELS_RECURRENCE_VECTOR_GATES_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/recurrence/prepare-inl.h"
#include "kernels/recurrence/vector_products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// F_i (or F_{i-1}: exclusive) into from_start, E_Cj into to_end, F_C into
// end_decay, all from the factors of the chunk, by rows.
HWY_MAYBE_UNUSED static HWY_NOINLINE void VectorDecays(const ChunkParts& at,
                                                       bool exclusive,
                                                       float* w) {
  const DF d;
  constexpr int64_t C = kRecurrentChunk;
  for (int64_t k = 0; k < at.key; k += kLanes) {
    const float* gamma = w + at.gates + k;
    float* from_start = w + at.from_start + k;
    float* to_end = w + at.to_end + k;
    VF down = hn::Set(d, 1.0f), up = down;
    for (int64_t i = 0; i < C; ++i) {
      if (exclusive) hn::StoreU(down, d, from_start + i * at.key);
      down = hn::Mul(down, hn::LoadU(d, gamma + i * at.key));
      if (!exclusive) hn::StoreU(down, d, from_start + i * at.key);
      const int64_t j = C - 1 - i;
      hn::StoreU(up, d, to_end + j * at.key);
      up = hn::Mul(up, hn::LoadU(d, gamma + j * at.key));
    }
    hn::StoreU(up, d, w + at.end_decay + k);
  }
}

// to = a * b * factor, entry by entry over [16, ld].
HWY_INLINE void MultiplyRows(const float* a, const float* b, float factor,
                             int64_t ld, float* to) {
  const DF d;
  const VF f = hn::Set(d, factor);
  for (int64_t i = 0; i < kRecurrentChunk * ld; i += kLanes) {
    hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), f), d,
               to + i);
  }
}

// Loads the factors of a chunk's vector gates; 1 in padding rows and columns.
HWY_MAYBE_UNUSED static void LoadVectorGates(const RecurrentInputs& in,
                                             const ChunkSpan& s,
                                             int64_t value_head,
                                             const ChunkParts& at, float* w) {
  const DF d;
  float* gates = w + at.gates;
  LoadTokens(in.gates, s, value_head, 0, in.gates.size[3], gates, at.key);
  for (int64_t i = 0; i < kRecurrentChunk * at.key; i += kLanes) {
    hn::StoreU(DecayFactor(hn::LoadU(d, gates + i)), d, gates + i);
  }
}

// The scores of a chunk with vector gates, P by rows over queries into scores
// and for the delta rule X with its diagonal into `solve`; keys_t holds K^T.
template <bool kDelta>
HWY_MAYBE_UNUSED static void PrepareVectorScores(
    const RecurrentOptions& options, const RecurrentInputs& in,
    int64_t value_head, const ChunkParts& at, float* w) {
  constexpr int64_t C = kRecurrentChunk;
  const int64_t d_key = in.keys.size[3];
  const float *queries = w + at.queries, *keys = w + at.keys;
  const float *keys_t = w + at.keys_t, *gates = w + at.gates;
  float *kept = w + at.spare, *scores = w + at.scores;
  if (kDelta) {
    VectorScores<true, false, false>(queries, keys, at.key, keys_t, gates,
                                     d_key, kept, scores, w + at.solve);
  } else if (in.bonus != nullptr) {
    VectorScores<false, true, false>(queries, nullptr, at.key, keys_t, gates,
                                     d_key, kept, scores, nullptr);
  } else {
    VectorScores<false, false, false>(queries, nullptr, at.key, keys_t, gates,
                                      d_key, kept, scores, nullptr);
  }
  if (options.scale != 1.0f) ScaleRow(scores, C * C, options.scale);
  if (in.bonus != nullptr) {
    AddBonus(in, at, value_head, options.scale, queries, keys, scores);
  }
}

// Does what PrepareScalar does, with P by rows over queries.
template <bool kDelta>
HWY_MAYBE_UNUSED static void PrepareVector(const RecurrentOptions& options,
                                           const RecurrentInputs& in,
                                           const ChunkSpan& s,
                                           int64_t value_head,
                                           const ChunkParts& at, float* w) {
  constexpr int64_t C = kRecurrentChunk;
  LoadVectorGates(in, s, value_head, at, w);
  VectorDecays(at, in.bonus != nullptr, w);
  Transpose(w + at.keys, at.key, C, at.key, w + at.keys_t, C);
  PrepareVectorScores<kDelta>(options, in, value_head, at, w);
  MultiplyRows(w + at.queries, w + at.from_start, options.scale, at.key,
               w + at.queries);
  Transpose(w + at.queries, at.key, C, at.key, w + at.queries_t, C);
  if constexpr (kDelta) {
    MultiplyRows(w + at.keys, w + at.from_start, -1.0f, at.key, w + at.spare);
    Transpose(w + at.spare, at.key, C, at.key, w + at.past_keys_t, C);
    // X by rows over queries becomes -X by rows over keys.
    HWY_ALIGN float rows[C * C];
    std::copy_n(w + at.solve, C * C, rows);
    Transpose(rows, C, C, C, w + at.solve, C);
    NegateScores(w + at.solve);
    LoadScalars(in.betas, s, value_head, 0.0f, w + at.betas);
  }
  MultiplyRows(w + at.keys, w + at.to_end, 1.0f, at.key, w + at.keys);
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
