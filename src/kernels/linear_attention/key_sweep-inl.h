// The gradient's sweep over keys: backward in time, with dL/dS and dL/dz
// carried; makes dk and dv and, for sequences of one chunk, dq as well, from
// the same rows and the same gradient of the scores.

#if defined(TARN_KERNELS_LINEAR_ATTENTION_KEY_SWEEP_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_LINEAR_ATTENTION_KEY_SWEEP_INL_H_
#undef TARN_KERNELS_LINEAR_ATTENTION_KEY_SWEEP_INL_H_
#else
#define TARN_KERNELS_LINEAR_ATTENTION_KEY_SWEEP_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/linear_attention/gradient-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

HWY_MAYBE_UNUSED static void ZeroKeyGradients(const ChunkContext& c) {
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
HWY_MAYBE_UNUSED static void ValuesTimesState(const ChunkContext& c,
                                              const float* state,
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

// acc += the rows of `b` at and after each row's own: row j of the tile takes
// the sum over i >= j of scores[i, j] b_i, i < rows.
template <int kRows, int kVectors>
HWY_MAYBE_UNUSED static HWY_INLINE void AddLaterRows(
    const ChunkContext& c, const float* scores, const float* b, int64_t ld,
    int64_t j, Tile<kRows, kVectors>& tile) {
  const int64_t chunk = c.at.chunk;
  tile.AddUpper(scores + j * chunk + j, 1, chunk, b + j * ld, ld);
  const int64_t next = j + kRows;
  if (next < c.rows.rows) {
    tile.AddProduct(scores + next * chunk + j, 1, chunk, b + next * ld, ld,
                    c.rows.rows - next);
  }
}

// db += V R^T + 1 r^T + dP^T a, from staging.
HWY_MAYBE_UNUSED static void KeyGradients(const ChunkContext& c, int64_t g) {
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
      if (!c.rows.reads_state) {
        if (g > 0) {
          tile.Load(db, at.key);
        } else {
          tile.Clear();
        }
      } else {
        tile.Load(w + at.staging + j * at.key + k, at.key);
        HWY_UNROLL(8)
        for (int r = 0; r < kRows; ++r) {
          HWY_UNROLL(2)
          for (int v = 0; v < kVectors; ++v) {
            // Without a denominator r still carries the gradient of the final
            // z.
            VF more = hn::LoadU(d, normalizer + k + v * kLanes);
            if (g > 0) {
              more = hn::Add(more, hn::LoadU(d, db + r * at.key + v * kLanes));
            }
            tile.at[r][v] = hn::Add(tile.at[r][v], more);
          }
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
HWY_MAYBE_UNUSED static HWY_INLINE void ValuePanel(const ChunkContext& c,
                                                   int64_t g, int64_t v,
                                                   RowPrefetcher& prefetch) {
  const BackwardLayout& at = c.at;
  float* w = c.w;
  float* panel = c.State(g) + v * at.key;
  if (c.rows.has_keys()) {
    ForRowTiles(c.rows.tile_rows(), [&](auto m, int64_t j) HWY_ATTR {
      Tile<decltype(m)::value, kVectors> tile;
      tile.Clear();
      if (c.rows.reads_state) {
        tile.AddProduct(w + at.keys_t + j, 1, at.chunk, panel, kPanel,
                        c.task.in->keys.size[3],
                        [&]() HWY_ATTR { prefetch.Next(); });
      }
      if (c.rows.has_queries()) {
        AddLaterRows(c, w + at.scores, w + at.grad_out + v, at.value, j, tile);
      }
      tile.Store(w + at.grad_col + j * at.value + v, at.value);
    });
  }
  if (c.rows.has_queries() && c.rows.leaves_state) {
    UpdatePanel(w + at.queries, at.key, w + at.grad_out + v, at.value,
                c.rows.query_end, at.key, kVectors, panel, prefetch);
  }
}

// r += a^T e.
HWY_MAYBE_UNUSED static void UpdateNormalizer(const ChunkContext& c,
                                              int64_t g) {
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

// da += dP b, which is all of da where no state is read.
HWY_MAYBE_UNUSED static void AddQueryGradients(const ChunkContext& c,
                                               int64_t g) {
  const BackwardLayout& at = c.at;
  float* w = c.w;
  ForPanels(at.key, [&](auto n, int64_t k) HWY_ATTR {
    ForRowTiles(c.rows.tile_rows(), [&](auto m, int64_t i) HWY_ATTR {
      Tile<decltype(m)::value, decltype(n)::value> tile;
      float* da = w + at.grad_query_row + i * at.key + k;
      if (g == 0) {
        tile.Clear();
      } else {
        tile.Load(da, at.key);
      }
      if (c.rows.has_keys()) {
        const float* scores = w + at.grad_scores + i * at.chunk;
        const float* keys = w + at.keys + k;
        tile.AddProduct(scores, at.chunk, 1, keys, at.key, i);
        tile.AddLower(scores + i, at.chunk, 1, keys + i * at.key, at.key);
      }
      tile.Store(da, at.key);
    });
  });
}

// dq from the rows of phi(q) in `queries`; rows that factors changed are loaded
// again.
HWY_MAYBE_UNUSED static void FinishAllQueryGradients(const ChunkContext& c,
                                                     bool changed) {
  float* features = c.w + c.at.queries;
  if (changed) {
    LoadQueries(*c.task.options, *c.task.in, c.s, c.rows, c.head, c.at.chunk,
                features, c.at.key);
  }
  RowPrefetcher nothing;
  StoreQueryGradients(c, features, changed, c.w + c.at.grad_query_row, nothing);
}

HWY_MAYBE_UNUSED static void AskForKeyRows(const ChunkContext& c,
                                           int64_t value_head,
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
HWY_MAYBE_UNUSED static void KeyChunkValueHead(const ChunkContext& c,
                                               int64_t g) {
  const LinearAttentionInputs& in = *c.task.in;
  const BackwardLayout& at = c.at;
  float* w = c.w;
  const int64_t value_head = c.head * c.task.group + g;
  RowPrefetcher prefetch;
  if (!c.task.with_queries) AskForKeyRows(c, value_head, prefetch);
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
    if (c.rows.reads_state) ValuesTimesState(c, c.State(g), prefetch);
    KeyGradients(c, g);
  }
  if (c.task.with_queries && c.rows.has_queries()) AddQueryGradients(c, g);
  ForPanels(at.value, [&](auto n, int64_t v) HWY_ATTR {
    ValuePanel<decltype(n)::value>(c, g, v, prefetch);
  });
  if (c.rows.has_queries() && c.has_denominator() && c.rows.leaves_state) {
    UpdateNormalizer(c, g);
  }
  const TensorView& dv = c.task.grad->grad_values;
  for (int64_t r = c.rows.key_begin; r < c.rows.key_end; ++r) {
    if (!KeyKept(in, c.s, c.rows.position + r)) continue;
    StoreRow(dv.dtype, w + at.grad_col + r * at.value, in.values.size[3],
             dv.Row(c.s.batch, c.KeyToken(r), value_head));
    prefetch.Next();
  }
}

HWY_MAYBE_UNUSED static void KeyChunk(const ChunkContext& c) {
  const LinearAttentionInputs& in = *c.task.in;
  const LinearAttentionOptions& options = *c.task.options;
  const BackwardLayout& at = c.at;
  float* w = c.w;
  const bool has_keys = c.rows.has_keys(), has_queries = c.rows.has_queries();
  bool changed = false;
  if (has_queries) {
    LoadQueries(options, in, c.s, c.rows, c.head, at.chunk, w + at.queries,
                at.key);
    changed = ScaleQueries(options, c.rows, w + at.queries, at.key);
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
  if (c.task.with_queries && has_queries) FinishAllQueryGradients(c, changed);
}

HWY_MAYBE_UNUSED static void KeySweep(const BackwardTask& task) {
  const LinearAttentionInputs& in = *task.in;
  const LinearAttentionGradients& grad = *task.grad;
  const int64_t chunk =
      ChunkTokens(*task.options, in, CarriesStates(*task.grad));
  const int64_t d_key = in.keys.size[3], d_value = in.values.size[3];
  const int64_t states = task.heads * task.group;
  const BackwardLayout at(chunk, d_key, d_value, states, task.with_queries);
  Sequence s = SequenceAt(*task.options, in, task.sequence, chunk);
  s.ahead = -chunk;
  float* w = task.scratch;
  const auto part = [&](auto* base, int64_t g, int64_t size) {
    const int64_t row =
        task.sequence * in.values.size[2] + task.first_head * task.group + g;
    return base == nullptr ? nullptr : base + row * size;
  };
  const bool begins_with =
      grad.grad_final_S != nullptr || grad.grad_final_z != nullptr;
  const bool ends_with =
      grad.grad_initial_S != nullptr || grad.grad_initial_z != nullptr;
  const bool carried =
      begins_with || ends_with || s.last_chunk - s.first_chunk > 1;
  for (int64_t g = 0; carried && g < states; ++g) {
    LoadState(part(grad.grad_final_S, g, d_key * d_value), d_key, d_value, 0,
              d_value, w + at.state + g * at.state_floats, at.key);
    LoadNormalizer(part(grad.grad_final_z, g, d_key), d_key,
                   w + at.normalizer + g * at.key, at.key);
  }
  for (int64_t c = s.last_chunk - 1; c >= s.first_chunk; --c) {
    ChunkRows rows = RowsOfChunk(s, c, chunk);
    TellOfState(s, c, false, begins_with, ends_with, rows);
    for (int64_t h = 0; h < task.heads; ++h) {
      KeyChunk({task, s, rows, at, w, task.first_head + h});
    }
  }
  for (int64_t g = 0; ends_with && g < states; ++g) {
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

#endif  // include guard
