// The forward pass of the gated recurrences over one sequence, chunk by chunk:
//   O = Qt S + tril(P) U;  S <- Diag(Gamma) S + Kb^T U
// with U = V, or for the delta rule the solution of solve-inl.h.

#if defined(TARN_KERNELS_RECURRENCE_FORWARD_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_RECURRENCE_FORWARD_INL_H_
#undef TARN_KERNELS_RECURRENCE_FORWARD_INL_H_
#else
#define TARN_KERNELS_RECURRENCE_FORWARD_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/recurrence/prepare-inl.h"
#include "kernels/recurrence/solve-inl.h"
#include "kernels/recurrence/vector_gates-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Where a chunk's outputs go: the tensor itself, or scratch when rows are
// absent or end inside a vector.
struct RecurrentOutputRows {
  char* data;
  int64_t stride;  // bytes
  DType dtype;
};

template <DType kType, int kRows, int kVectors>
static HWY_INLINE void StoreOutputTile(const Tile<kRows, kVectors>& tile,
                                       char* to, int64_t stride) {
  constexpr int64_t kBytes = static_cast<int64_t>(DTypeBytes(kType));
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(2)
    for (int c = 0; c < kVectors; ++c) {
      StoreVector<kType>(DF(), tile.at[r][c],
                         to + r * stride + c * kLanes * kBytes);
    }
  }
}

// Columns [v, v + kPanel) of the outputs, then of the state.
template <bool kDelta, bool kGated, int kVectors>
static HWY_INLINE void RecurrentPanel(const ChunkParts& at, int64_t d_key,
                                      const ChunkSpan& s, const ScoreView& p,
                                      float* state, int64_t v,
                                      const RecurrentOutputRows& out, float* w,
                                      RowPrefetcher& prefetch) {
  constexpr int64_t C = kRecurrentChunk;
  float* panel = state + v * at.key;
  const float* values = w + at.values + v;
  if (kDelta) {
    SolveResiduals<kVectors>(at, d_key, s.reads_state, panel, v, w, prefetch);
  }
  ForRowTiles((s.rows + 3) / 4 * 4, [&](auto m, int64_t i) HWY_ATTR {
    constexpr int kRows = decltype(m)::value;
    Tile<kRows, kVectors> tile;
    tile.Clear();
    if (s.reads_state) {
      tile.AddProduct(w + at.queries_t + i, 1, C, panel, kPanel, d_key,
                      [&]() HWY_ATTR { prefetch.Next(); });
    }
    const float* scores = p.at + i * p.query;
    tile.AddProduct(scores, p.query, p.key, values, at.value, i);
    tile.AddLower(scores + i * p.key, p.query, p.key, values + i * at.value,
                  at.value);
    const auto store = [&](auto type) HWY_ATTR {
      constexpr DType kType = decltype(type)::value;
      StoreOutputTile<kType>(tile,
                             out.data + i * out.stride +
                                 v * static_cast<int64_t>(DTypeBytes(kType)),
                             out.stride);
    };
    WithDType(out.dtype, store);
  });
  if (s.leaves_state) {
    DecayPanel<kGated, kVectors>(w + at.keys, at.key, values, at.value, s.rows,
                                 at.key, w + at.end_decay, panel, panel,
                                 prefetch);
  }
}

// Loads a chunk of one value head and prepares its products.
template <bool kDelta>
HWY_MAYBE_UNUSED static ScoreView PrepareChunk(const RecurrentOptions& options,
                                               const RecurrentInputs& in,
                                               const ChunkSpan& s,
                                               int64_t value_head,
                                               int64_t column, int64_t columns,
                                               const ChunkParts& at, float* w) {
  const int64_t key_head = value_head / (in.values.size[2] / in.keys.size[2]);
  const int64_t d_key = in.keys.size[3];
  LoadTokens(in.keys, s, key_head, 0, d_key, w + at.keys, at.key);
  LoadTokens(in.values, s, value_head, column, columns, w + at.values,
             at.value);
  LoadTokens(in.queries, s, key_head, 0, d_key, w + at.queries, at.key);
  ScoreView scores = {w + at.scores, 1, kRecurrentChunk};
  if (in.VectorGates()) {
    PrepareVector<kDelta>(options, in, s, value_head, at, w);
    scores = {w + at.scores, kRecurrentChunk, 1};
  } else {
    PrepareScalar<kDelta>(options, in, s, value_head, at, w);
  }
  if (kDelta) ScaleByBetas(at, w);
  return scores;
}

template <bool kDelta>
static void RecurrentForwardChunk(const RecurrentTask& task, int64_t value_head,
                                  const ChunkSpan& s,
                                  const RecurrentForwardLayout& layout,
                                  float* state) {
  const RecurrentInputs& in = *task.in;
  const ChunkParts& at = layout.chunk;
  float* w = task.scratch;
  const int64_t key_head = value_head / (in.values.size[2] / in.keys.size[2]);
  const ScoreView scores = PrepareChunk<kDelta>(
      *task.options, in, s, value_head, task.column, task.columns, at, w);
  const TensorView& out = task.out->out;
  const int64_t skip =
      task.column * static_cast<int64_t>(DTypeBytes(out.dtype));
  RowPrefetcher prefetch;
  const int64_t next = s.first + kRecurrentChunk;
  prefetch.Add(in.keys, in.keys.Row(s.batch, next, key_head), in.keys.size[3]);
  prefetch.Add(in.values, in.values.Row(s.batch, next, value_head) + skip,
               task.columns);
  prefetch.Add(in.queries, in.queries.Row(s.batch, next, key_head),
               in.keys.size[3]);
  prefetch.Add(out, out.Row(s.batch, next, value_head) + skip, task.columns);
  if (in.VectorGates()) {
    prefetch.Add(in.gates, in.gates.Row(s.batch, next, value_head),
                 in.gates.size[3]);
  }
  prefetch.Start(
      kRecurrentChunk,
      (kDelta ? 3 : 2) * ProductPauses(kRecurrentChunk, at.key, at.value));
  const bool direct = s.rows == kRecurrentChunk && task.columns == at.value;
  RecurrentOutputRows to = {reinterpret_cast<char*>(w + layout.out),
                            at.value * static_cast<int64_t>(sizeof(float)),
                            DType::kF32};
  if (direct) {
    const ChunkView view(out, s.batch, s.first, value_head, task.column);
    to = {const_cast<char*>(view.data), view.stride, out.dtype};
  }
  const bool gated = IsGated(in);
  ForPanels(at.value, [&](auto n, int64_t v) HWY_ATTR {
    constexpr int kVectors = decltype(n)::value;
    if (gated) {
      RecurrentPanel<kDelta, true, kVectors>(at, in.keys.size[3], s, scores,
                                             state, v, to, w, prefetch);
    } else {
      RecurrentPanel<kDelta, false, kVectors>(at, in.keys.size[3], s, scores,
                                              state, v, to, w, prefetch);
    }
  });
  for (int64_t r = 0; !direct && r < s.rows; ++r) {
    StoreRow(out.dtype, w + layout.out + r * at.value, task.columns,
             out.Row(s.batch, s.first + r, value_head) + skip);
  }
}

// Outputs of padding rows are zero.
HWY_MAYBE_UNUSED static void ZeroPadding(const TensorView& view,
                                         const TokenSpan& s, int64_t head,
                                         int64_t column, int64_t columns) {
  const int64_t bytes = static_cast<int64_t>(DTypeBytes(view.dtype));
  for (int64_t t = s.tokens; t < s.rows; ++t) {
    std::memset(view.Row(s.batch, s.first + t, head) + column * bytes, 0,
                static_cast<size_t>(columns * bytes));
  }
}

// Takes the heads of a task through its sequence, chunk by chunk:
// chunk(value_head, span, layout, state). States come in, are saved at
// checkpoints and go out.
template <class F>
HWY_INLINE void ForEachChunk(const RecurrentTask& task, const F& chunk) {
  const RecurrentInputs& in = *task.in;
  const RecurrentForwardLayout layout(in, task.columns, task.heads);
  const ChunkParts& at = layout.chunk;
  const int64_t d_key = in.keys.size[3], d_value = in.values.size[3];
  const TokenSpan span = SpanAt(in, task.sequence);
  const int64_t value_heads = in.values.size[2];
  const auto dense = [&](auto* base, int64_t row, int64_t h) {
    const int64_t index = row * value_heads + task.first_head + h;
    return base == nullptr ? nullptr : base + index * d_key * d_value;
  };
  const auto state_at = [&](int64_t h) {
    return task.scratch + layout.state + h * at.key * PadState(task.columns);
  };
  for (int64_t h = 0; h < task.heads; ++h) {
    LoadState(dense(in.initial_state, task.sequence, h), d_key, d_value,
              task.column, task.columns, state_at(h), at.key);
    ZeroPadding(task.out->out, span, task.first_head + h, task.column,
                task.columns);
  }
  for (int64_t c = 0; c < span.chunks(); ++c) {
    ChunkSpan s = ChunkAt(span, c);
    s.reads_state = c > 0 || in.initial_state != nullptr;
    s.leaves_state = c + 1 < span.chunks() || task.out->final_state != nullptr;
    for (int64_t h = 0; h < task.heads; ++h) {
      if (c > 0 && c % kGroupChunks == 0) {
        const int64_t slot = span.checkpoint + c / kGroupChunks - 1;
        StoreState(state_at(h), at.key, d_key, d_value, task.column,
                   task.columns, dense(task.out->checkpoints, slot, h));
      }
      chunk(task.first_head + h, s, layout, state_at(h));
    }
  }
  for (int64_t h = 0; h < task.heads; ++h) {
    StoreState(state_at(h), at.key, d_key, d_value, task.column, task.columns,
               dense(task.out->final_state, task.sequence, h));
  }
}

template <bool kDelta>
static void RecurrentForwardSequence(const RecurrentTask& task) {
  ForEachChunk(
      task, [&](int64_t value_head, const ChunkSpan& s,
                const RecurrentForwardLayout& layout, float* state) HWY_ATTR {
        RecurrentForwardChunk<kDelta>(task, value_head, s, layout, state);
      });
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
