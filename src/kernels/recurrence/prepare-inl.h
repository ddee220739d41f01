// Prepares a chunk of a gated recurrence for its products: Qt, Kb, the scores P
// and, for the delta rule, -Pt and -X. What the products need does not tell one
// kind of gate from another.

#if defined(TARN_KERNELS_RECURRENCE_PREPARE_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_RECURRENCE_PREPARE_INL_H_
#undef TARN_KERNELS_RECURRENCE_PREPARE_INL_H_
#else
#define TARN_KERNELS_RECURRENCE_PREPARE_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/recurrence/chunk-inl.h"
#include "kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A matrix of scores [16 queries, 16 keys], as rows of either.
struct ScoreView {
  const float* at;
  int64_t query, key;  // strides
};

// The chunk's factors exp(g) of one value head into gates [16]; the tokens
// after the last decay nothing.
HWY_INLINE void LoadScalarGates(const RecurrentInputs& in, const ChunkSpan& s,
                                int64_t value_head, float* gates) {
  if (in.HasGates()) {
    LoadScalars(in.gates, s, value_head, 0.0f, gates);
  } else {
    std::fill(gates, gates + s.rows, in.head_gates[value_head]);
    std::fill(gates + s.rows, gates + kRecurrentChunk, 0.0f);
  }
  for (int64_t i = 0; i < kRecurrentChunk; i += kLanes) {
    hn::StoreU(DecayFactor(hn::LoadU(DF(), gates + i)), DF(), gates + i);
  }
}

// scores of keys (rows j) with the lanes' rows, masked below the diagonal.
HWY_INLINE void KeyScores(const ChunkParts& at, const float* keys,
                          const float* lanes_t, int64_t d_key, float* to) {
  constexpr int64_t C = kRecurrentChunk;
  Scores<Half::kLaneNotBefore>(
      {keys, at.key, lanes_t, C, C, C, d_key, nullptr, nullptr, to});
}

// Rows r_i . (u * k_i) of the exclusive read onto the diagonal of the scores.
HWY_INLINE void AddBonus(const RecurrentInputs& in, const ChunkParts& at,
                         int64_t value_head, float scale, const float* queries,
                         const float* keys, float* scores) {
  const DF d;
  const int64_t d_key = in.keys.size[3];
  const float* bonus = in.bonus + value_head * d_key;
  for (int64_t r = 0; r < kRecurrentChunk; ++r) {
    VF sum = hn::Zero(d);
    for (int64_t k = 0; k < at.key; k += kLanes) {
      const int64_t left = d_key - k;
      const VF u = left >= kLanes ? hn::LoadU(d, bonus + k)
                   : left > 0     ? LoadPart(bonus + k, left)
                                  : hn::Zero(d);
      sum = hn::MulAdd(hn::Mul(hn::LoadU(d, queries + r * at.key + k), u),
                       hn::LoadU(d, keys + r * at.key + k), sum);
    }
    scores[r * kRecurrentChunk + r] =
        hn::GetLane(hn::SumOfLanes(d, sum)) * scale;
  }
}

// -X_ij by rows over keys j, without betas, from the scores of keys with keys.
HWY_INLINE void NegateScores(float* scores) {
  const VF minus = hn::Set(DF(), -1.0f);
  for (int64_t j = 0; j < kRecurrentChunk; ++j) {
    BlockLanes x(scores + j * kRecurrentChunk);
    x.Multiply(minus);
    x.Store(scores + j * kRecurrentChunk);
  }
  ZeroDiagonal(scores);
}

// A chunk with no gate or one per token, from its rows `queries` and `keys`:
// queries_t becomes Qt^T, keys become Kb, scores (rows over keys) P, and for
// the delta rule past_keys_t -Pt^T, solve -X without betas.
template <bool kDelta>
HWY_MAYBE_UNUSED static void PrepareScalar(const RecurrentOptions& options,
                                           const RecurrentInputs& in,
                                           const ChunkSpan& s,
                                           int64_t value_head,
                                           const ChunkParts& at, float* w) {
  constexpr int64_t C = kRecurrentChunk;
  const int64_t d_key = in.keys.size[3];
  const bool gated = IsGated(in), exclusive = in.bonus != nullptr;
  if (gated || exclusive) {
    if (gated) {
      LoadScalarGates(in, s, value_head, w + at.gates);
    } else {
      std::fill(w + at.gates, w + at.gates + C, 1.0f);
    }
    ScalarDecays(at, exclusive, w);
  }
  Transpose(w + at.queries, at.key, C, at.key, w + at.queries_t, C);
  KeyScores(at, w + at.keys, w + at.queries_t, d_key, w + at.scores);
  if (gated || exclusive) {
    DecayScores(w + at.scores, w + at.pairs_t, options.scale);
    if (exclusive) {
      AddBonus(in, at, value_head, options.scale, w + at.queries, w + at.keys,
               w + at.scores);
    }
    ScaleLanes(w + at.queries_t, d_key, w + at.from_start, options.scale,
               w + at.queries_t);
  } else if (options.scale != 1.0f) {
    for (int64_t i = 0; i < C; ++i) {
      ScaleRow(w + at.scores + i * C, C, options.scale);
    }
    ScaleRow(w + at.queries_t, C * at.key, options.scale);
  }
  if constexpr (kDelta) {
    Transpose(w + at.keys, at.key, C, at.key, w + at.keys_t, C);
    KeyScores(at, w + at.keys, w + at.keys_t, d_key, w + at.solve);
    if (gated) DecayScores(w + at.solve, w + at.pairs_t, 1.0f);
    NegateScores(w + at.solve);
    if (gated) {
      ScaleLanes(w + at.keys_t, d_key, w + at.from_start, -1.0f,
                 w + at.past_keys_t);
    } else {
      const VF minus = hn::Set(DF(), -1.0f);
      for (int64_t k = 0; k < d_key; ++k) {
        BlockLanes x(w + at.keys_t + k * C);
        x.Multiply(minus);
        x.Store(w + at.past_keys_t + k * C);
      }
    }
    LoadScalars(in.betas, s, value_head, 0.0f, w + at.betas);
  }
  if (gated) ScaleRows(w + at.keys, at.key, w + at.to_end);
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
