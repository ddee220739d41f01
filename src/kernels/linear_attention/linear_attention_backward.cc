// Gradient in chunked form, denominator and states included. With a = factor *
// phi(q), b = phi(k), G_i = g_i / d_i, e_i = -(g_i . o_i) / d_i:
//   sweep over queries, forward in time, S and z rebuilt on the way:
//     dP = tril(G V^T + e 1^T);  da = G S^T + e z^T + dP b
//   sweep over keys, backward in time, R = dL/dS and r = dL/dz carried:
//     P = tril(a b^T);  dv = P^T G + b R;  db = dP^T a + V R^T + 1 r^T
//     R += a^T G;  r += a^T e
// The sweeps are independent tasks and nothing is saved between chunks. The
// price against one reverse sweep over stored states is computing dP twice.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/error.h"
#include "kernels/linear_attention/geometry.h"
#include "kernels/linear_attention/gradient.h"
#include "kernels/linear_attention/linear_attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE \
  "kernels/linear_attention/linear_attention_backward.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/linear_attention/gradient-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

// ---- Sweep over queries.

// dP^T, rows over keys: v_j . G_i + e_i for i >= j.
static void GradScoresT(const ChunkContext& c) {
  const BackwardLayout& at = c.at;
  float* w = c.w;
  Transpose(w + at.grad_out, at.value, at.chunk, at.value, w + at.grad_out_t,
            at.chunk);
  if (!c.rows.has_keys()) return;
  Scores<Half::kLaneNotBefore>({w + at.values, at.value, w + at.grad_out_t,
                                at.chunk, c.rows.tile_rows(), c.rows.rows,
                                c.task.in->values.size[3], nullptr,
                                w + at.grad_den, w + at.grad_scores});
}

// Columns [k, k + kPanel) of da += G S^T + e z^T + dP b, then of S^T += V^T b.
template <int kVectors>
static HWY_INLINE void QueryPanel(const ChunkContext& c, int64_t g, int64_t k,
                                  RowPrefetcher& prefetch) {
  const BackwardLayout& at = c.at;
  float* w = c.w;
  float* panel = c.State(g) + k * at.value;
  const float* keys = w + at.keys + k;
  const auto pause = [&]() HWY_ATTR { prefetch.Next(); };
  if (c.rows.has_queries()) {
    ForRowTiles(c.rows.tile_rows(), [&](auto m, int64_t i) HWY_ATTR {
      Tile<decltype(m)::value, kVectors> tile;
      float* da = w + at.grad_row + i * at.key + k;
      if (g == 0) {
        tile.Clear();
      } else {
        tile.Load(da, at.key);
      }
      tile.AddProduct(w + at.grad_out_t + i, 1, at.chunk, panel, kPanel,
                      c.task.in->values.size[3], pause);
      if (c.has_denominator()) {
        tile.AddOuter(w + at.grad_den + i, 1, c.Normalizer(g) + k);
      }
      if (c.rows.has_keys()) {
        const float* scores = w + at.grad_scores + i;
        tile.AddProduct(scores, 1, at.chunk, keys, at.key, i);
        tile.AddLower(scores + i * at.chunk, 1, at.chunk, keys + i * at.key,
                      at.key);
      }
      tile.Store(da, at.key);
    });
  }
  if (c.rows.has_keys()) {
    UpdatePanel(w + at.values, at.value, keys, at.key, c.rows.key_end, at.value,
                kVectors, panel, prefetch);
  }
}

// dq = slope * factor * da, stored.
static void StoreQueryGradients(const ChunkContext& c,
                                RowPrefetcher& prefetch) {
  const LinearAttentionInputs& in = *c.task.in;
  const LinearAttentionOptions& options = *c.task.options;
  const TensorView& dq = c.task.grad->grad_queries;
  float* w = c.w;
  LoadQueries(options, in, c.s, c.rows, c.head, c.at.chunk,
              w + c.at.grad_queries, c.at.key);
  for (int64_t r = c.rows.query_begin; r < c.rows.query_end; ++r) {
    float* features = w + c.at.grad_queries + r * c.at.key;
    const float factor = QueryFactor(options, features, c.at.key);
    FeatureGradientRow(options.feature_map, features,
                       w + c.at.grad_row + r * c.at.key, factor, c.at.key,
                       features);
    StoreRow(dq.dtype, features, in.queries.size[3],
             dq.Row(c.s.batch, c.QueryToken(r), c.head));
    prefetch.Next();
  }
}

// Rows one chunk on in the walk, of every tensor that the sweep touches.
static void AskForQueryRows(const ChunkContext& c, int64_t value_head,
                            RowPrefetcher& prefetch) {
  const LinearAttentionInputs& in = *c.task.in;
  const LinearAttentionGradients& grad = *c.task.grad;
  const int64_t b = c.s.batch;
  if (c.rows.has_keys()) {
    const int64_t t = c.KeyToken(0) + c.s.ahead;
    prefetch.Add(in.keys, in.keys.Row(b, t, c.head), in.keys.size[3]);
    prefetch.Add(in.values, in.values.Row(b, t, value_head), in.values.size[3]);
  }
  if (c.rows.has_queries()) {
    const int64_t t = c.QueryToken(0) + c.s.ahead;
    prefetch.Add(grad.grad_out, grad.grad_out.Row(b, t, value_head),
                 in.values.size[3]);
    if (c.has_denominator()) {
      prefetch.Add(grad.out, grad.out.Row(b, t, value_head), in.values.size[3]);
    }
    prefetch.Add(in.queries, in.queries.Row(b, t, c.head), in.keys.size[3]);
    prefetch.Add(grad.grad_queries, grad.grad_queries.Row(b, t, c.head),
                 in.keys.size[3]);
  }
  prefetch.Start(
      c.at.chunk,
      2 * ProductPauses(c.at.chunk, c.at.key, c.at.value) + 2 * c.at.chunk);
}

static void QueryChunk(const ChunkContext& c) {
  const LinearAttentionInputs& in = *c.task.in;
  const BackwardLayout& at = c.at;
  float* w = c.w;
  if (c.rows.has_keys()) {
    LoadKeys(*c.task.options, in, c.s, c.rows, c.head, at.chunk, w + at.keys,
             at.key, w + at.key_sums);
  }
  RowPrefetcher prefetch;
  for (int64_t g = 0; g < c.task.group; ++g) {
    const int64_t value_head = c.head * c.task.group + g;
    if (c.rows.has_keys()) {
      LoadValues(in, c.s, c.rows, value_head, 0, in.values.size[3], at.chunk,
                 w + at.values, at.value);
    }
    prefetch = RowPrefetcher();
    AskForQueryRows(c, value_head, prefetch);
    if (c.rows.has_queries()) {
      LoadGradOut(c, value_head, prefetch);
      GradScoresT(c);
    }
    ForPanels(at.key, [&](auto n, int64_t k) HWY_ATTR {
      QueryPanel<decltype(n)::value>(c, g, k, prefetch);
    });
    if (c.rows.has_keys()) {
      AddRow(w + at.key_sums, at.key, c.Normalizer(g));
    }
  }
  if (c.rows.has_queries()) StoreQueryGradients(c, prefetch);
}

static void QuerySweep(const BackwardTask& task) {
  const LinearAttentionInputs& in = *task.in;
  const int64_t chunk = ChunkTokens(*task.options);
  const int64_t d_key = in.keys.size[3], d_value = in.values.size[3];
  const int64_t states = task.heads * task.group;
  const BackwardLayout at(chunk, d_key, d_value, states);
  const Sequence s = SequenceAt(*task.options, in, task.sequence, chunk);
  float* w = task.scratch;
  std::memset(w + at.state, 0,
              static_cast<size_t>(at.total - at.state) * sizeof(float));
  for (int64_t g = 0; in.initial_S != nullptr && g < states; ++g) {
    const int64_t row =
        task.sequence * in.values.size[2] + task.first_head * task.group + g;
    const float* from = in.initial_S + row * d_key * d_value;
    float* state_t = w + at.state + g * at.state_floats;
    for (int64_t k = 0; k < d_key; ++k) {
      float* panel = state_t + k / kPanel * kPanel * at.value + k % kPanel;
      for (int64_t v = 0; v < d_value; ++v) {
        panel[v * kPanel] = from[k * d_value + v];
      }
    }
    LoadNormalizer(in.initial_z + row * d_key, d_key,
                   w + at.normalizer + g * at.key, at.key);
  }
  for (int64_t c = s.first_chunk; c < s.last_chunk; ++c) {
    const ChunkRows rows = RowsOfChunk(s, c, chunk);
    for (int64_t h = 0; h < task.heads; ++h) {
      QueryChunk({task, s, rows, at, w, task.first_head + h});
    }
  }
}

// ---- Sweep over keys.

static void ZeroKeyGradients(const ChunkContext& c) {
  // Keys past key_lengths or masked: no update, zero gradient.
  const LinearAttentionInputs& in = *c.task.in;
  const LinearAttentionGradients& grad = *c.task.grad;
  if (c.rows.AllKeys(c.at.chunk) && in.key_mask == nullptr) return;
  const int64_t first = std::max<int64_t>(c.rows.position, 0);
  const int64_t last = std::min(c.rows.position + c.at.chunk, c.s.keys);
  for (int64_t key = first; key < last; ++key) {
    if (key < c.s.kept && KeyKept(in, c.s, key)) continue;
    const int64_t t = c.s.key_at + key;
    std::memset(grad.grad_keys.Row(c.s.batch, t, c.head), 0,
                static_cast<size_t>(in.keys.size[3]) *
                    DTypeBytes(grad.grad_keys.dtype));
    for (int64_t g = 0; g < c.task.group; ++g) {
      std::memset(grad.grad_values.Row(c.s.batch, t, c.head * c.task.group + g),
                  0,
                  static_cast<size_t>(in.values.size[3]) *
                      DTypeBytes(grad.grad_values.dtype));
    }
  }
}

// (V R^T)^T with lanes over tokens, so that R needs no transpose: [key, chunk]
// into grad_col, then its transpose [chunk, key] into staging.
static void ValuesTimesState(const ChunkContext& c, const float* state,
                             RowPrefetcher& prefetch) {
  const BackwardLayout& at = c.at;
  float* w = c.w;
  const int64_t d_value = c.task.in->values.size[3];
  for (int64_t j = 0; j < at.chunk; j += kBlock) {
    for (int64_t k = 0; k < at.key; k += kScoreRows) {
      Tile<kScoreRows, kBlockVectors> tile;
      tile.Clear();
      for (int64_t v = 0; v < d_value; v += kPanel) {
        tile.AddProduct(state + v * at.key + k * kPanel, kPanel, 1,
                        w + at.values_t + v * at.chunk + j, at.chunk,
                        std::min(kPanel, d_value - v),
                        [&]() HWY_ATTR { prefetch.Next(); });
      }
      tile.Store(w + at.grad_col + k * at.chunk + j, at.chunk);
    }
  }
  Transpose(w + at.grad_col, at.chunk, at.key, at.chunk, w + at.staging,
            at.key);
}

// acc += the rows at and after each row's own, of `b`: row j of the tile takes
// sum over i >= j of scores[i, j] b_i, i < rows.
template <int kRows, int kVectors>
static HWY_INLINE void AddLaterRows(const ChunkContext& c, const float* scores,
                                    const float* b, int64_t ld, int64_t j,
                                    Tile<kRows, kVectors>& tile) {
  const int64_t chunk = c.at.chunk;
  tile.AddUpper(scores + j * chunk + j, 1, chunk, b + j * ld, ld);
  const int64_t next = j + kRows;
  if (next < c.rows.rows) {
    tile.AddProduct(scores + next * chunk + j, 1, chunk, b + next * ld, ld,
                    c.rows.rows - next);
  }
}

// db += V R^T + 1 r^T + dP^T a, from staging.
static void KeyGradients(const ChunkContext& c, int64_t g) {
  const BackwardLayout& at = c.at;
  float* w = c.w;
  const DF d;
  const float* normalizer = c.Normalizer(g);
  ForPanels(at.key, [&](auto n, int64_t k) HWY_ATTR {
    constexpr int kVectors = decltype(n)::value;
    ForRowTiles(c.rows.tile_rows(), [&](auto m, int64_t j) HWY_ATTR {
      constexpr int kRows = decltype(m)::value;
      Tile<kRows, kVectors> tile;
      float* db = w + at.grad_row + j * at.key + k;
      tile.Load(w + at.staging + j * at.key + k, at.key);
      HWY_UNROLL(8)
      for (int r = 0; r < kRows; ++r) {
        HWY_UNROLL(2)
        for (int v = 0; v < kVectors; ++v) {
          // Without a denominator r still carries the gradient of the final z.
          VF more = hn::LoadU(d, normalizer + k + v * kLanes);
          if (g > 0) {
            more = hn::Add(more, hn::LoadU(d, db + r * at.key + v * kLanes));
          }
          tile.at[r][v] = hn::Add(tile.at[r][v], more);
        }
      }
      if (c.rows.has_queries()) {
        AddLaterRows(c, w + at.grad_scores, w + at.queries + k, at.key, j,
                     tile);
      }
      tile.Store(db, at.key);
    });
  });
}

// Columns [v, v + kPanel) of dv = P^T G + b R into grad_col, then of
// R += a^T G.
template <int kVectors>
static HWY_INLINE void ValuePanel(const ChunkContext& c, int64_t g, int64_t v,
                                  RowPrefetcher& prefetch) {
  const BackwardLayout& at = c.at;
  float* w = c.w;
  float* panel = c.State(g) + v * at.key;
  if (c.rows.has_keys()) {
    ForRowTiles(c.rows.tile_rows(), [&](auto m, int64_t j) HWY_ATTR {
      Tile<decltype(m)::value, kVectors> tile;
      tile.Clear();
      tile.AddProduct(w + at.keys_t + j, 1, at.chunk, panel, kPanel,
                      c.task.in->keys.size[3],
                      [&]() HWY_ATTR { prefetch.Next(); });
      if (c.rows.has_queries()) {
        AddLaterRows(c, w + at.scores, w + at.grad_out + v, at.value, j, tile);
      }
      tile.Store(w + at.grad_col + j * at.value + v, at.value);
    });
  }
  if (c.rows.has_queries()) {
    UpdatePanel(w + at.queries, at.key, w + at.grad_out + v, at.value,
                c.rows.query_end, at.key, kVectors, panel, prefetch);
  }
}

// r += a^T e.
static void UpdateNormalizer(const ChunkContext& c, int64_t g) {
  const DF d;
  const BackwardLayout& at = c.at;
  const float* queries = c.w + at.queries;
  float* r = c.Normalizer(g);
  for (int64_t k = 0; k < at.key; k += kLanes) {
    VF sum = hn::LoadU(d, r + k);
    for (int64_t i = c.rows.query_begin; i < c.rows.query_end; ++i) {
      sum = hn::MulAdd(hn::Set(d, c.w[at.grad_den + i]),
                       hn::LoadU(d, queries + i * at.key + k), sum);
    }
    hn::StoreU(sum, d, r + k);
  }
}

static void AskForKeyRows(const ChunkContext& c, int64_t value_head,
                          RowPrefetcher& prefetch) {
  const LinearAttentionInputs& in = *c.task.in;
  const LinearAttentionGradients& grad = *c.task.grad;
  const int64_t b = c.s.batch;
  const int64_t d_key = in.keys.size[3], d_value = in.values.size[3];
  if (c.rows.has_queries()) {
    const int64_t t = c.QueryToken(0) + c.s.ahead;
    prefetch.Add(in.queries, in.queries.Row(b, t, c.head), d_key);
    prefetch.Add(grad.grad_out, grad.grad_out.Row(b, t, value_head), d_value);
    if (c.has_denominator()) {
      prefetch.Add(grad.out, grad.out.Row(b, t, value_head), d_value);
    }
  }
  if (c.rows.has_keys()) {
    const int64_t t = c.KeyToken(0) + c.s.ahead;
    prefetch.Add(in.keys, in.keys.Row(b, t, c.head), d_key);
    prefetch.Add(in.values, in.values.Row(b, t, value_head), d_value);
    prefetch.Add(grad.grad_keys, grad.grad_keys.Row(b, t, c.head), d_key);
    prefetch.Add(grad.grad_values, grad.grad_values.Row(b, t, value_head),
                 d_value);
  }
  prefetch.Start(
      c.at.chunk,
      3 * ProductPauses(c.at.chunk, c.at.key, c.at.value) + 2 * c.at.chunk);
}

// One value head's part of a chunk: dv, its share of db, and R, r.
static void KeyChunkValueHead(const ChunkContext& c, int64_t g) {
  const LinearAttentionInputs& in = *c.task.in;
  const BackwardLayout& at = c.at;
  float* w = c.w;
  const int64_t value_head = c.head * c.task.group + g;
  RowPrefetcher prefetch;
  AskForKeyRows(c, value_head, prefetch);
  if (c.rows.has_queries()) LoadGradOut(c, value_head, prefetch);
  if (c.rows.has_keys()) {
    LoadValues(in, c.s, c.rows, value_head, 0, in.values.size[3], at.chunk,
               w + at.values, at.value);
    Transpose(w + at.values, at.value, at.chunk, at.value, w + at.values_t,
              at.chunk);
    if (c.rows.has_queries()) {
      Scores<Half::kLaneNotAfter>({w + at.grad_out, at.value, w + at.values_t,
                                   at.chunk, c.rows.tile_rows(), c.rows.rows,
                                   in.values.size[3], w + at.grad_den, nullptr,
                                   w + at.grad_scores});
    }
    ValuesTimesState(c, c.State(g), prefetch);
    KeyGradients(c, g);
  }
  ForPanels(at.value, [&](auto n, int64_t v) HWY_ATTR {
    ValuePanel<decltype(n)::value>(c, g, v, prefetch);
  });
  if (c.rows.has_queries() && c.has_denominator()) UpdateNormalizer(c, g);
  const TensorView& dv = c.task.grad->grad_values;
  for (int64_t r = c.rows.key_begin; r < c.rows.key_end; ++r) {
    if (!KeyKept(in, c.s, c.rows.position + r)) continue;
    StoreRow(dv.dtype, w + at.grad_col + r * at.value, in.values.size[3],
             dv.Row(c.s.batch, c.KeyToken(r), value_head));
    prefetch.Next();
  }
}

static void KeyChunk(const ChunkContext& c) {
  const LinearAttentionInputs& in = *c.task.in;
  const LinearAttentionOptions& options = *c.task.options;
  const BackwardLayout& at = c.at;
  float* w = c.w;
  const bool has_keys = c.rows.has_keys(), has_queries = c.rows.has_queries();
  if (has_queries) {
    LoadQueries(options, in, c.s, c.rows, c.head, at.chunk, w + at.queries,
                at.key);
    ScaleQueries(options, c.rows, w + at.queries, at.key);
  }
  if (has_keys) {
    LoadKeys(options, in, c.s, c.rows, c.head, at.chunk, w + at.keys, at.key,
             nullptr);
    Transpose(w + at.keys, at.key, at.chunk, at.key, w + at.keys_t, at.chunk);
  }
  if (has_keys && has_queries) {
    Scores<Half::kLaneNotAfter>(
        {w + at.queries, at.key, w + at.keys_t, at.chunk, c.rows.tile_rows(),
         c.rows.rows, in.keys.size[3], nullptr, nullptr, w + at.scores});
  }
  for (int64_t g = 0; g < c.task.group; ++g) KeyChunkValueHead(c, g);
  ZeroKeyGradients(c);
  const TensorView& dk = c.task.grad->grad_keys;
  for (int64_t r = c.rows.key_begin; r < c.rows.key_end; ++r) {
    if (!KeyKept(in, c.s, c.rows.position + r)) continue;
    float* row = w + at.grad_row + r * at.key;
    FeatureGradientRow(options.feature_map, w + at.keys + r * at.key, row, 1.0f,
                       at.key, row);
    StoreRow(dk.dtype, row, in.keys.size[3],
             dk.Row(c.s.batch, c.KeyToken(r), c.head));
  }
}

static void KeySweep(const BackwardTask& task) {
  const LinearAttentionInputs& in = *task.in;
  const LinearAttentionGradients& grad = *task.grad;
  const int64_t chunk = ChunkTokens(*task.options);
  const int64_t d_key = in.keys.size[3], d_value = in.values.size[3];
  const int64_t states = task.heads * task.group;
  const BackwardLayout at(chunk, d_key, d_value, states);
  Sequence s = SequenceAt(*task.options, in, task.sequence, chunk);
  s.ahead = -chunk;
  float* w = task.scratch;
  const auto part = [&](auto* base, int64_t g, int64_t size) {
    const int64_t row =
        task.sequence * in.values.size[2] + task.first_head * task.group + g;
    return base == nullptr ? nullptr : base + row * size;
  };
  for (int64_t g = 0; g < states; ++g) {
    LoadState(part(grad.grad_final_S, g, d_key * d_value), d_key, d_value, 0,
              d_value, w + at.state + g * at.state_floats, at.key);
    LoadNormalizer(part(grad.grad_final_z, g, d_key), d_key,
                   w + at.normalizer + g * at.key, at.key);
  }
  for (int64_t c = s.last_chunk - 1; c >= s.first_chunk; --c) {
    const ChunkRows rows = RowsOfChunk(s, c, chunk);
    for (int64_t h = 0; h < task.heads; ++h) {
      KeyChunk({task, s, rows, at, w, task.first_head + h});
    }
  }
  for (int64_t g = 0; g < states; ++g) {
    StoreState(w + at.state + g * at.state_floats, at.key, d_key, d_value, 0,
               d_value, part(grad.grad_initial_S, g, d_key * d_value));
    if (float* z = part(grad.grad_initial_z, g, d_key)) {
      std::memcpy(z, w + at.normalizer + g * at.key,
                  static_cast<size_t>(d_key) * sizeof(float));
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(QuerySweep);
HWY_EXPORT(KeySweep);

static int64_t BackwardHeads(const LinearAttentionInputs& in, int width) {
  // Two sweeps a head: twice the tasks.
  return HeadsPerTask(in.keys.size[2], 2 * SequenceCount(in), width,
                      in.keys.size[3] * in.values.size[3] *
                          (in.values.size[2] / in.keys.size[2]));
}

int64_t BackwardScratchFloats(const LinearAttentionOptions& options,
                              const LinearAttentionInputs& in, int width) {
  return BackwardLayout(
             ChunkTokens(options), in.keys.size[3], in.values.size[3],
             BackwardHeads(in, width) * (in.values.size[2] / in.keys.size[2]))
      .total;
}

namespace {

void CheckGradients(const LinearAttentionOptions& options,
                    const LinearAttentionInputs& in,
                    const LinearAttentionGradients& grad) {
  const auto same = [](const char* name, const TensorView& given,
                       const TensorView& wanted) {
    if (!std::equal(given.size, given.size + 4, wanted.size) ||
        given.dtype != wanted.dtype) {
      throw ShapeError(
          StrCat("linear_attention gradient: ", name),
          StrCat(ShapeText(wanted.Shape()), " ", DTypeName(wanted.dtype)),
          StrCat(ShapeText(given.Shape()), " ", DTypeName(given.dtype)));
    }
  };
  same("grad_out", grad.grad_out, grad.out);
  same("grad_queries", grad.grad_queries, in.queries);
  same("grad_keys", grad.grad_keys, in.keys);
  same("grad_values", grad.grad_values, in.values);
  const bool empty = in.queries.size[0] * in.queries.size[1] == 0;
  if (options.denominator != Denominator::kNone && !empty &&
      grad.denominators == nullptr) {
    throw ArgumentError("linear_attention gradient: denominators",
                        "those of the forward call", "a null pointer");
  }
}

}  // namespace

void LinearAttentionBackward(const LinearAttentionOptions& options,
                             const LinearAttentionInputs& in,
                             const LinearAttentionGradients& gradients,
                             Executor& executor, void* workspace) {
  CheckLinearAttention(options, in, {.out = gradients.out});
  CheckGradients(options, in, gradients);
  const int64_t all_heads = in.queries.size[2];
  const int64_t heads = BackwardHeads(in, executor.width());
  const int64_t blocks = (all_heads + heads - 1) / heads;
  const int64_t tasks = SequenceCount(in) * blocks;
  const int64_t floats = BackwardScratchFloats(options, in, executor.width());
  // The sweep over keys is the longer one: it comes first in the queue.
  executor.ParallelFor(2 * tasks, [&](int64_t index, int worker) {
    const int64_t block = index % tasks;
    const int64_t first = block % blocks * heads;
    const BackwardTask task = {
        &options,
        &in,
        &gradients,
        block / blocks,
        first,
        std::min(heads, all_heads - first),
        in.values.size[2] / all_heads,
        static_cast<float*>(workspace) + worker * floats};
    if (index < tasks) {
      HWY_DYNAMIC_DISPATCH(KeySweep)(task);
    } else {
      HWY_DYNAMIC_DISPATCH(QuerySweep)(task);
    }
  });
}

}  // namespace tarn
#endif  // HWY_ONCE
