// Rebuilds what the gradient needs of the forward pass: the states before the
// chunks of a group and, for the delta rule, R and X. The arithmetic is that of
// the forward call, so a state is bit-identical wherever it comes from.

#if defined(TARN_KERNELS_RECURRENCE_REBUILD_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_RECURRENCE_REBUILD_INL_H_
#undef TARN_KERNELS_RECURRENCE_REBUILD_INL_H_
#else
#define TARN_KERNELS_RECURRENCE_REBUILD_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/recurrence/gradient_layout.h"
#include "kernels/recurrence/solve-inl.h"
#include "kernels/recurrence/vector_gates-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Decays of a chunk of one value head; without gates, all are 1.
HWY_MAYBE_UNUSED static void LoadDecays(const RecurrentInputs& in,
                                        const ChunkSpan& s, int64_t value_head,
                                        const ChunkParts& at, float* w) {
  const bool exclusive = in.bonus != nullptr;
  if (in.VectorGates()) {
    LoadVectorGates(in, s, value_head, at, w);
    return VectorDecays(at, exclusive, w);
  }
  if (IsGated(in)) {
    LoadScalarGates(in, s, value_head, w + at.gates);
  } else {
    std::fill_n(w + at.gates, kRecurrentChunk, 1.0f);
  }
  ScalarDecays(at, exclusive, w);
}

// -X without betas by rows over keys into solve, and -Pt^T into past_keys_t,
// from keys and keys_t.
HWY_MAYBE_UNUSED static void PrepareSolve(const RecurrentInputs& in,
                                          const ChunkParts& at, float* w) {
  constexpr int64_t C = kRecurrentChunk;
  const int64_t d_key = in.keys.size[3];
  if (in.VectorGates()) {
    HWY_ALIGN float rows[C * C];
    VectorScores<false, false, false>(w + at.keys, nullptr, at.key,
                                      w + at.keys_t, w + at.gates, d_key,
                                      w + at.spare, rows, nullptr);
    Transpose(rows, C, C, C, w + at.solve, C);
    MultiplyRows(w + at.keys, w + at.from_start, -1.0f, at.key, w + at.spare);
    Transpose(w + at.spare, at.key, C, at.key, w + at.past_keys_t, C);
  } else {
    KeyScores(at, w + at.keys, w + at.keys_t, d_key, w + at.solve);
    if (IsGated(in)) DecayScores(w + at.solve, w + at.pairs_t, 1.0f);
    ScaleLanes(w + at.keys_t, d_key, w + at.from_start, -1.0f,
               w + at.past_keys_t);
  }
  NegateScores(w + at.solve);
}

// The state after chunk c of a group from the one before it, value head g of
// the task; for the delta rule R and -X are kept.
template <bool kDelta>
HWY_MAYBE_UNUSED static void RebuildChunk(const RecurrentGradientTask& task,
                                          const RecurrentGradientLayout& layout,
                                          const ChunkSpan& s, int64_t g,
                                          const float* from, float* to,
                                          float* residuals, float* solve,
                                          RowPrefetcher& prefetch) {
  constexpr int64_t C = kRecurrentChunk;
  const RecurrentInputs& in = *task.in;
  const ChunkParts& at = layout.chunk;
  float* w = task.scratch;
  const int64_t d_key = in.keys.size[3];
  const int64_t value_head = task.value_head + g;
  LoadTokens(in.keys, s, task.head, 0, d_key, w + at.keys, at.key);
  LoadTokens(in.values, s, value_head, 0, in.values.size[3], w + at.values,
             at.value);
  LoadDecays(in, s, value_head, at, w);
  if (kDelta) {
    Transpose(w + at.keys, at.key, C, at.key, w + at.keys_t, C);
    PrepareSolve(in, at, w);
    if (solve != nullptr) std::copy_n(w + at.solve, C * C, solve);
    LoadScalars(in.betas, s, value_head, 0.0f, w + at.betas);
    ScaleByBetas(at, w);
  }
  if (in.VectorGates()) {
    MultiplyRows(w + at.keys, w + at.to_end, 1.0f, at.key, w + at.keys);
  } else {
    ScaleRows(w + at.keys, at.key, w + at.to_end);
  }
  ForPanels(at.value, [&](auto n, int64_t v) HWY_ATTR {
    constexpr int kVectors = decltype(n)::value;
    if (kDelta) {
      SolveResiduals<kVectors>(at, d_key, s.reads_state, from + v * at.key, v,
                               w, prefetch);
    }
    if (s.leaves_state) {
      DecayPanel<true, kVectors>(w + at.keys, at.key, w + at.values + v,
                                 at.value, s.rows, at.key, w + at.end_decay,
                                 from + v * at.key, to + v * at.key, prefetch);
    }
  });
  if (kDelta && residuals != nullptr) {
    std::copy_n(w + at.residuals, C * at.value, residuals);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
