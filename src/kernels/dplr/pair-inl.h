// One chunk with a low-rank pair in scratch. With rows c of reads and b of
// writes, and scores of the past with E_{i-1,j}:
//   (I - Acb) Z = Ct S + Ack V,   Ct_i = F_{i-1} c_i
//   O = Qt S + P V + Pb Z,        S' = Gamma S + Kb^T V + Bb^T Z
// Gates of any kind are held as vectors.

#if defined(TARN_KERNELS_DPLR_PAIR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_DPLR_PAIR_INL_H_
#undef TARN_KERNELS_DPLR_PAIR_INL_H_
#else
#define TARN_KERNELS_DPLR_PAIR_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/recurrence/forward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The factors of the chunk as rows [16, key], whatever kind of gates there is.
HWY_MAYBE_UNUSED static void LoadPairGates(const RecurrentInputs& in,
                                           const ChunkSpan& s, int64_t head,
                                           const ChunkParts& at, float* w) {
  if (in.VectorGates()) return LoadVectorGates(in, s, head, at, w);
  const DF d;
  HWY_ALIGN float gates[kRecurrentChunk];
  if (IsGated(in)) {
    LoadScalarGates(in, s, head, gates);
  } else {
    std::fill_n(gates, kRecurrentChunk, 1.0f);
  }
  for (int64_t i = 0; i < kRecurrentChunk; ++i) {
    const VF factor = hn::Set(d, gates[i]);
    for (int64_t k = 0; k < at.key; k += kLanes) {
      hn::StoreU(factor, d, w + at.gates + i * at.key + k);
    }
  }
}

// to_i = rows_i * F_{i-1}.
HWY_INLINE void MultiplyByPast(const ChunkParts& at, const float* rows,
                               const float* from_start, float* to) {
  std::copy_n(rows, at.key, to);
  const DF d;
  for (int64_t i = at.key; i < kRecurrentChunk * at.key; i += kLanes) {
    hn::StoreU(
        hn::Mul(hn::LoadU(d, rows + i), hn::LoadU(d, from_start + i - at.key)),
        d, to + i);
  }
}

// Loads all but the queries and values of a chunk, its decays, K^T and B^T.
HWY_MAYBE_UNUSED static void LoadPair(const RecurrentInputs& in,
                                      const ChunkSpan& s, int64_t head,
                                      const ChunkParts& at, float* w) {
  constexpr int64_t C = kRecurrentChunk;
  const int64_t d_key = in.keys.size[3];
  LoadTokens(in.keys, s, head, 0, d_key, w + at.keys, at.key);
  LoadTokens(in.reads, s, head, 0, d_key, w + at.reads, at.key);
  LoadTokens(in.writes, s, head, 0, d_key, w + at.writes, at.key);
  LoadPairGates(in, s, head, at, w);
  VectorDecays(at, false, w);
  Transpose(w + at.keys, at.key, C, at.key, w + at.keys_t, C);
  Transpose(w + at.writes, at.key, C, at.key, w + at.writes_t, C);
}

// P, Pb, Ack and Acb, all by rows over queries or reads.
HWY_MAYBE_UNUSED static void PairScores(const RecurrentOptions& options,
                                        const RecurrentInputs& in,
                                        const ChunkParts& at, float* w) {
  constexpr int64_t C = kRecurrentChunk;
  const int64_t d_key = in.keys.size[3];
  VectorScores<true, false, true>(
      w + at.queries, w + at.reads, at.key, w + at.keys_t, w + at.gates, d_key,
      w + at.spare, w + at.scores, w + at.past_scores);
  VectorScores<true, false, true>(
      w + at.queries, w + at.reads, at.key, w + at.writes_t, w + at.gates,
      d_key, w + at.spare, w + at.write_scores, w + at.solve);
  if (options.scale != 1.0f) {
    ScaleRow(w + at.scores, C * C, options.scale);
    ScaleRow(w + at.write_scores, C * C, options.scale);
  }
}

// Ack and Acb alone.
HWY_MAYBE_UNUSED static void PastScores(const RecurrentInputs& in,
                                        const ChunkParts& at, float* w) {
  const int64_t d_key = in.keys.size[3];
  VectorScores<false, true, false>(w + at.reads, nullptr, at.key, w + at.keys_t,
                                   w + at.gates, d_key, w + at.spare,
                                   w + at.past_scores, nullptr);
  VectorScores<false, true, false>(w + at.reads, nullptr, at.key,
                                   w + at.writes_t, w + at.gates, d_key,
                                   w + at.spare, w + at.solve, nullptr);
}

// Ct^T into past_keys_t; Kb and Bb in the places of keys and writes.
HWY_MAYBE_UNUSED static void DecayPair(const ChunkParts& at, float* w) {
  constexpr int64_t C = kRecurrentChunk;
  MultiplyByPast(at, w + at.reads, w + at.from_start, w + at.spare);
  Transpose(w + at.spare, at.key, C, at.key, w + at.past_keys_t, C);
  MultiplyRows(w + at.keys, w + at.to_end, 1.0f, at.key, w + at.keys);
  MultiplyRows(w + at.writes, w + at.to_end, 1.0f, at.key, w + at.writes);
}

// Columns of one panel of Z into residuals.
template <int kVectors>
HWY_INLINE void SolveReads(const ChunkParts& at, int64_t d_key,
                           bool reads_state, const float* panel, int64_t v,
                           float* w) {
  constexpr int64_t C = kRecurrentChunk;
  ForRowTiles(C, [&](auto m, int64_t i) HWY_ATTR {
    constexpr int kRows = decltype(m)::value;
    Tile<kRows, kVectors> tile;
    tile.Clear();
    if (reads_state) {
      tile.AddProduct(w + at.past_keys_t + i, 1, C, panel, kPanel, d_key);
    }
    const float* past = w + at.past_scores + i * C;
    const float* solve = w + at.solve + i * C;
    const float* values = w + at.values + v;
    float* residuals = w + at.residuals + v;
    tile.AddProduct(past, C, 1, values, at.value, i);
    tile.AddLower(past + i, C, 1, values + i * at.value, at.value);
    tile.AddProduct(solve, C, 1, residuals, at.value, i);
    SolveLower<0>(solve + i, C, 1, tile);
    tile.Store(residuals + i * at.value, at.value);
  });
}

// One panel of the state after the chunk.
template <int kVectors>
HWY_INLINE void UpdatePair(const ChunkParts& at, const ChunkSpan& s, int64_t v,
                           const float* from, float* to, float* w,
                           RowPrefetcher& prefetch) {
  DecayPanel<true, kVectors>(w + at.keys, at.key, w + at.values + v, at.value,
                             s.rows, at.key, w + at.end_decay, from, to,
                             prefetch);
  UpdatePanel(w + at.writes, at.key, w + at.residuals + v, at.value, s.rows,
              at.key, kVectors, to, prefetch);
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
