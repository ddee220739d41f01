// Forward pass in chunked form (docs/kernels.md). Per chunk of C tokens, with
// S, z the state before it:
//   P = tril(phi(Q) phi(K)^T);  n = phi(Q) S + P V;  d = phi(Q) z + rowsum(P)
//   o = n / d;  S += phi(K)^T V;  z += phi(K)^T 1
#include "kernels/linear_attention/linear_attention.h"

#include <algorithm>
#include <cstdint>

#include "kernels/linear_attention/geometry.h"
#include "kernels/scratch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear_attention/linear_attention.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/linear_attention/chunk-inl.h"

// Declarations used by every target's pass over this file.
#ifndef TARN_LINEAR_ATTENTION_FORWARD_ONCE
#define TARN_LINEAR_ATTENTION_FORWARD_ONCE
namespace tarn {

// One task: a sequence, some adjacent value heads and a slice of value columns.
struct ForwardTask {
  const LinearAttentionOptions* options;
  const LinearAttentionInputs* in;
  const LinearAttentionOutputs* out;
  int64_t sequence, first_head, heads, column, columns;
  float* scratch;
};

// Scratch of a worker, in floats; every part a multiple of 16.
struct ForwardLayout {
  int64_t chunk, key, value;  // C, padded K, padded V (of a slice)
  int64_t queries, queries_t, keys, values, scores_t, out, key_sums, factors,
      denominators, inverse, state, normalizer, total;
  ForwardLayout(int64_t chunk_tokens, int64_t d_key, int64_t columns,
                int64_t heads) {
    chunk = chunk_tokens;
    key = PadRow(d_key);
    value = PadRow(columns);
    ScratchPlan plan;
    queries = plan.Take(chunk * key);
    queries_t = plan.Take(chunk * key);
    keys = plan.Take(chunk * key);
    values = plan.Take(chunk * value);
    scores_t = plan.Take(chunk * chunk);
    out = plan.Take(chunk * value);
    key_sums = plan.Take(key);
    factors = plan.Take(chunk);
    denominators = plan.Take(chunk);
    inverse = plan.Take(chunk);
    // A state for each head of the task.
    state = plan.Take(heads * key * PadState(columns));
    normalizer = plan.Take(heads * key);
    total = plan.total();
  }
};

}  // namespace tarn
#endif

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

// One head of a task and its state.
struct ForwardHead {
  int64_t value_head;
  float* state;       // panels of [padded K, V]
  float* normalizer;  // [padded K]
};

// d_i = q_i . z + sum_j scores_ij for the chunk's queries, lanes over tokens,
// and the factors of their numerators.
static HWY_NOINLINE void Denominators(const ForwardTask& task, const float* z,
                                      const ChunkRows& rows,
                                      const ForwardLayout& at) {
  const DF d;
  const LinearAttentionOptions& options = *task.options;
  float* w = task.scratch;
  const int64_t d_key = rows.reads_state ? task.in->keys.size[3] : 0;
  for (int64_t i = 0; i < rows.rows; i += kLanes) {
    const float* column = w + at.queries_t + i;
    VF sum[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
    for (int64_t k = 0; k < d_key; k += 4) {  // rows of z and Q^T are padded
      HWY_UNROLL(4)
      for (int u = 0; u < 4; ++u) {
        sum[u] = hn::MulAdd(hn::Set(d, z[k + u]),
                            hn::LoadU(d, column + (k + u) * at.chunk), sum[u]);
      }
    }
    VF total = hn::Add(hn::Add(sum[0], sum[1]), hn::Add(sum[2], sum[3]));
    const int64_t last =
        rows.has_keys() ? std::min(i / kBlock * kBlock + kBlock, rows.key_end)
                        : 0;
    for (int64_t j = 0; j < last; ++j) {
      total = hn::Add(total, hn::LoadU(d, w + at.scores_t + j * at.chunk + i));
    }
    if (options.denominator == Denominator::kCompat) {
      total = hn::Add(total, hn::Set(d, options.eps));
    } else {  // NaN stays NaN
      total = hn::IfThenZeroElse(hn::Lt(total, hn::Set(d, kLeastDenominator)),
                                 total);
    }
    hn::StoreU(total, d, w + at.denominators + i);
    hn::StoreU(hn::Div(hn::Set(d, 1.0f), total), d, w + at.inverse + i);
  }
}

// Denominators of the chunk into the result, for the gradient.
static void StoreDenominators(const ForwardTask& task, const ForwardHead& head,
                              const Sequence& s, const ChunkRows& rows,
                              const ForwardLayout& at) {
  if (task.out->denominators == nullptr || task.column != 0) return;
  const int64_t stride = task.in->values.size[2];
  const int64_t token = s.query_at + rows.position - s.offset;
  float* to = task.out->denominators +
              (s.batch * task.in->queries.size[1] + token) * stride +
              head.value_head;
  const float* from = task.scratch + at.denominators;
  for (int64_t r = rows.query_begin; r < rows.query_end; ++r) {
    to[r * stride] = from[r];
  }
}

// Outputs from scratch, row by row; rows without a denominator are zero.
static void StoreOutputs(const ForwardTask& task, const ForwardHead& head,
                         const Sequence& s, const ChunkRows& rows,
                         const ForwardLayout& at) {
  const bool exact = task.options->denominator == Denominator::kExact;
  const TensorView& out = task.out->out;
  const int64_t skip =
      task.column * static_cast<int64_t>(DTypeBytes(out.dtype));
  for (int64_t r = rows.query_begin; r < rows.query_end; ++r) {
    const int64_t token = s.query_at + rows.position + r - s.offset;
    float* row = task.scratch + at.out + r * at.value;
    if (exact && task.scratch[at.denominators + r] == 0.0f) {
      ZeroRows(row, 0, 1, at.value);
    }
    StoreRow(out.dtype, row, task.columns,
             out.Row(s.batch, token, head.value_head) + skip);
  }
}

// Where a chunk's outputs go: the tensor itself, or scratch when rows are
// absent, empty or end inside a vector.
struct OutputRows {
  char* data;
  int64_t stride;  // bytes
  DType dtype;
};

// Multiplies a tile by its rows' 1/d into `to`, rows `stride` bytes apart.
template <DType kType, int kRows, int kVectors>
static HWY_INLINE void StoreTile(const Tile<kRows, kVectors>& tile,
                                 const float* inverse, char* to,
                                 int64_t stride) {
  const DF d;
  constexpr int64_t kBytes = static_cast<int64_t>(DTypeBytes(kType));
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    const VF factor = hn::Set(d, inverse[r]);
    HWY_UNROLL(2)
    for (int c = 0; c < kVectors; ++c) {
      StoreVector<kType>(d, hn::Mul(tile.at[r][c], factor),
                         to + r * stride + c * kLanes * kBytes);
    }
  }
}

// Columns [v, v + kPanel) of O = (Q S + tril(Q K^T) V) / d, then of S += K^T V:
// the panel of S is read and written while it is in L1.
template <int kVectors>
static HWY_INLINE void ForwardPanel(const ForwardTask& task,
                                    const ChunkRows& rows,
                                    const ForwardLayout& at, float* state,
                                    int64_t v, const OutputRows& out,
                                    RowPrefetcher& prefetch) {
  float* w = task.scratch;
  float* panel = state + v * at.key;
  const float* values = w + at.values + v;
  const int64_t d_key = task.in->keys.size[3];
  if (rows.has_queries()) {
    const bool has_keys = rows.has_keys();
    ForRowTiles(rows.tile_rows(), [&](auto m, int64_t i) HWY_ATTR {
      constexpr int kRows = decltype(m)::value;
      Tile<kRows, kVectors> tile;
      tile.Clear();
      if (rows.reads_state) {
        tile.AddProduct(w + at.queries_t + i, 1, at.chunk, panel, kPanel, d_key,
                        [&]() HWY_ATTR { prefetch.Next(); });
      }
      if (has_keys) {
        const float* scores_t = w + at.scores_t + i;
        tile.AddProduct(scores_t, 1, at.chunk, values, at.value, i);
        tile.AddLower(scores_t + i * at.chunk, 1, at.chunk,
                      values + i * at.value, at.value);
      }
      const auto store = [&](auto type) HWY_ATTR {
        constexpr DType kType = decltype(type)::value;
        StoreTile<kType>(tile, w + at.inverse + i,
                         out.data + i * out.stride +
                             v * static_cast<int64_t>(DTypeBytes(kType)),
                         out.stride);
      };
      WithDType(out.dtype, store);
    });
  }
  if (rows.has_keys() && rows.leaves_state) {
    UpdatePanel(w + at.keys, at.key, values, at.value, rows.key_end, at.key,
                kVectors, panel, prefetch);
  }
}

// True when tiles may be stored into the output tensor.
static bool OutputsDirect(const ForwardTask& task, const ChunkRows& rows,
                          const ForwardLayout& at) {
  if (!rows.AllQueries(at.chunk) || task.columns != at.value) return false;
  if (task.options->denominator != Denominator::kExact) return true;
  const DF d;
  const float* denominators = task.scratch + at.denominators;
  for (int64_t i = 0; i < at.chunk; i += kLanes) {
    if (!hn::AllFalse(d, hn::Eq(hn::LoadU(d, denominators + i), hn::Zero(d)))) {
      return false;
    }
  }
  return true;
}

static void ForwardChunk(const ForwardTask& task, const ForwardHead& head,
                         const Sequence& s, const ChunkRows& rows,
                         const ForwardLayout& at) {
  const LinearAttentionOptions& options = *task.options;
  const LinearAttentionInputs& in = *task.in;
  float* w = task.scratch;
  const int64_t key_head =
      head.value_head / (in.values.size[2] / in.keys.size[2]);
  if (rows.has_keys()) {
    LoadKeys(options, in, s, rows, key_head, at.chunk, w + at.keys, at.key,
             w + at.key_sums);
    LoadValues(in, s, rows, head.value_head, task.column, task.columns,
               at.chunk, w + at.values, at.value);
  }
  if (rows.has_queries()) {
    LoadQueries(options, in, s, rows, key_head, at.chunk, w + at.queries,
                at.key);
    Transpose(w + at.queries, at.key, at.chunk, at.key, w + at.queries_t,
              at.chunk);
    ScaleQueriesT(options, rows, in.keys.size[3], at.chunk, w + at.queries_t,
                  w + at.factors);
    if (rows.has_keys()) {
      Scores<Half::kLaneNotBefore>(
          {w + at.keys, at.key, w + at.queries_t, at.chunk, rows.tile_rows(),
           rows.rows, in.keys.size[3], nullptr, nullptr, w + at.scores_t});
    }
    if (options.denominator != Denominator::kNone) {
      Denominators(task, head.normalizer, rows, at);
    }
  }
  RowPrefetcher prefetch;
  const int64_t skip =
      task.column * static_cast<int64_t>(DTypeBytes(in.values.dtype));
  const int64_t ahead = rows.position + s.ahead;
  const int64_t key_at = s.key_at + ahead,
                query_at = s.query_at + ahead - s.offset;
  if (rows.has_keys()) {
    prefetch.Add(in.keys, in.keys.Row(s.batch, key_at, key_head),
                 in.keys.size[3]);
    prefetch.Add(in.values,
                 in.values.Row(s.batch, key_at, head.value_head) + skip,
                 task.columns);
  }
  if (rows.has_queries()) {
    prefetch.Add(in.queries, in.queries.Row(s.batch, query_at, key_head),
                 in.queries.size[3]);
    prefetch.Add(task.out->out,
                 task.out->out.Row(s.batch, query_at, head.value_head) + skip,
                 task.columns);
  }
  prefetch.Start(at.chunk, 2 * ProductPauses(at.chunk, at.key, at.value));
  const bool direct = OutputsDirect(task, rows, at);
  OutputRows to = {reinterpret_cast<char*>(w + at.out),
                   at.value * static_cast<int64_t>(sizeof(float)), DType::kF32};
  if (direct) {
    const ChunkView out(task.out->out, s.batch,
                        s.query_at + rows.position - s.offset, head.value_head,
                        task.column);
    to = {const_cast<char*>(out.data), out.stride, task.out->out.dtype};
  }
  ForPanels(at.value, [&](auto n, int64_t v) HWY_ATTR {
    ForwardPanel<decltype(n)::value>(task, rows, at, head.state, v, to,
                                     prefetch);
  });
  if (rows.has_queries()) {
    if (!direct) StoreOutputs(task, head, s, rows, at);
    StoreDenominators(task, head, s, rows, at);
  }
  if (rows.has_keys() && rows.leaves_state) {
    AddRow(w + at.key_sums, at.key, head.normalizer);
  }
}

static void ForwardSequence(const ForwardTask& task) {
  const LinearAttentionInputs& in = *task.in;
  const bool begins_with = in.initial_S != nullptr;
  const bool ends_with =
      task.out->final_S != nullptr || task.out->final_z != nullptr;
  const int64_t chunk = ChunkTokens(*task.options, in, ends_with);
  const int64_t d_key = in.keys.size[3], d_value = in.values.size[3];
  const ForwardLayout at(chunk, d_key, task.columns, task.heads);
  const Sequence s = SequenceAt(*task.options, in, task.sequence, chunk);
  const auto head_at = [&](int64_t h) {
    return ForwardHead{
        task.first_head + h,
        task.scratch + at.state + h * at.key * PadState(task.columns),
        task.scratch + at.normalizer + h * at.key};
  };
  const auto part = [&](auto* base, int64_t h, int64_t size) {
    const int64_t row = task.sequence * in.values.size[2] + task.first_head + h;
    return base == nullptr ? nullptr : base + row * size;
  };
  const bool carried =
      begins_with || ends_with || s.last_chunk - s.first_chunk > 1;
  for (int64_t h = 0; carried && h < task.heads; ++h) {
    LoadState(part(in.initial_S, h, d_key * d_value), d_key, d_value,
              task.column, task.columns, head_at(h).state, at.key);
    LoadNormalizer(part(in.initial_z, h, d_key), d_key, head_at(h).normalizer,
                   at.key);
  }
  std::fill_n(task.scratch + at.denominators, 2 * chunk, 1.0f);
  for (int64_t c = s.first_chunk; c < s.last_chunk; ++c) {
    ChunkRows rows = RowsOfChunk(s, c, chunk);
    TellOfState(s, c, true, begins_with, ends_with, rows);
    for (int64_t h = 0; h < task.heads; ++h) {
      ForwardChunk(task, head_at(h), s, rows, at);
    }
  }
  for (int64_t h = 0; ends_with && h < task.heads; ++h) {
    StoreState(head_at(h).state, at.key, d_key, d_value, task.column,
               task.columns, part(task.out->final_S, h, d_key * d_value));
    if (float* z = part(task.out->final_z, h, d_key);
        z != nullptr && task.column == 0) {
      std::memcpy(z, head_at(h).normalizer,
                  static_cast<size_t>(d_key) * sizeof(float));
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(ForwardSequence);

namespace {

int64_t ForwardHeads(const LinearAttentionInputs& in, int width) {
  return HeadsPerTask(in.values.size[2], SequenceCount(in), width,
                      in.keys.size[3] * in.values.size[3]);
}

int64_t ForwardScratchFloats(const LinearAttentionOptions& options,
                             const LinearAttentionInputs& in, int width) {
  // This is enough for any outputs: a call that carries states has shorter
  // chunks.
  return ForwardLayout(ChunkTokens(options, in, false), in.keys.size[3],
                       in.values.size[3], ForwardHeads(in, width))
      .total;
}

}  // namespace

size_t LinearAttentionWorkspaceBytes(const LinearAttentionOptions& options,
                                     const LinearAttentionInputs& in,
                                     int width) {
  return static_cast<size_t>(ForwardScratchFloats(options, in, width)) *
         sizeof(float) * static_cast<size_t>(width);
}

void LinearAttentionForward(const LinearAttentionOptions& options,
                            const LinearAttentionInputs& in,
                            const LinearAttentionOutputs& outputs,
                            Executor& executor, void* workspace) {
  CheckLinearAttention(options, in, outputs);
  const int64_t d_value = in.values.size[3], value_heads = in.values.size[2];
  const int width = executor.width();
  const int64_t rows = SequenceCount(in) * value_heads;
  const int64_t heads = ForwardHeads(in, width);
  const int64_t blocks = (value_heads + heads - 1) / heads;
  // Columns of S are independent: slices of a multiple of 32 divide the work of
  // few heads among the workers and change no bit; each slice computes the
  // scores.
  constexpr int64_t kSlice = 2 * kRowPad;
  int64_t slices = 1;
  if (rows > 0 && rows < width) {
    slices =
        std::min((d_value + kSlice - 1) / kSlice, (width + rows - 1) / rows);
  }
  const int64_t columns =
      (d_value + slices * kSlice - 1) / (slices * kSlice) * kSlice;
  const int64_t floats = ForwardScratchFloats(options, in, width);
  const auto run = [&](int64_t index, int worker) {
    const int64_t column = index % slices * columns;
    if (column >= d_value) return;
    const int64_t first = index / slices % blocks * heads;
    const ForwardTask task = {&options,
                              &in,
                              &outputs,
                              index / slices / blocks,
                              first,
                              std::min(heads, value_heads - first),
                              column,
                              std::min(columns, d_value - column),
                              static_cast<float*>(workspace) + worker * floats};
    HWY_DYNAMIC_DISPATCH(ForwardSequence)(task);
  };
  executor.ParallelFor(SequenceCount(in) * blocks * slices, run);
}

}  // namespace tarn
#endif  // HWY_ONCE
