// The gradient's sweep over queries: forward in time, rebuilds S, z; makes dq.

#if defined(TARN_KERNELS_LINEAR_ATTENTION_QUERY_SWEEP_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_LINEAR_ATTENTION_QUERY_SWEEP_INL_H_
#undef TARN_KERNELS_LINEAR_ATTENTION_QUERY_SWEEP_INL_H_
#else
#define TARN_KERNELS_LINEAR_ATTENTION_QUERY_SWEEP_INL_H_
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

// dP^T, rows over keys: v_j . G_i + e_i for i >= j.
HWY_MAYBE_UNUSED static void GradScoresT(const ChunkContext& c) {
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
HWY_MAYBE_UNUSED static HWY_INLINE void QueryPanel(const ChunkContext& c,
                                                   int64_t g, int64_t k,
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
      if (c.rows.reads_state) {
        tile.AddProduct(w + at.grad_out_t + i, 1, at.chunk, panel, kPanel,
                        c.task.in->values.size[3], pause);
        if (c.has_denominator()) {
          tile.AddOuter(w + at.grad_den + i, 1, c.Normalizer(g) + k);
        }
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
  if (c.rows.has_keys() && c.rows.leaves_state) {
    UpdatePanel(w + at.values, at.value, keys, at.key, c.rows.key_end, at.value,
                kVectors, panel, prefetch);
  }
}

// Recomputes phi(q), and dq from it.
HWY_MAYBE_UNUSED static void FinishQueryGradients(const ChunkContext& c,
                                                  RowPrefetcher& prefetch) {
  float* features = c.w + c.at.grad_queries;
  LoadQueries(*c.task.options, *c.task.in, c.s, c.rows, c.head, c.at.chunk,
              features, c.at.key);
  StoreQueryGradients(c, features, /*scaled=*/true, c.w + c.at.grad_row,
                      prefetch);
}

// Prefetches the rows of the next chunk of all tensors the sweep touches.
HWY_MAYBE_UNUSED static void AskForQueryRows(const ChunkContext& c,
                                             int64_t value_head,
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

HWY_MAYBE_UNUSED static void QueryChunk(const ChunkContext& c) {
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
    if (c.rows.has_keys() && c.rows.leaves_state) {
      AddRow(w + at.key_sums, at.key, c.Normalizer(g));
    }
  }
  if (c.rows.has_queries()) FinishQueryGradients(c, prefetch);
}

HWY_MAYBE_UNUSED static void QuerySweep(const BackwardTask& task) {
  const LinearAttentionInputs& in = *task.in;
  const int64_t chunk =
      ChunkTokens(*task.options, in, CarriesStates(*task.grad));
  const int64_t d_key = in.keys.size[3], d_value = in.values.size[3];
  const int64_t states = task.heads * task.group;
  const BackwardLayout at(chunk, d_key, d_value, states, false);
  const Sequence s = SequenceAt(*task.options, in, task.sequence, chunk);
  float* w = task.scratch;
  const bool begins_with = in.initial_S != nullptr;
  if (begins_with || s.last_chunk - s.first_chunk > 1) {
    std::memset(w + at.state, 0,
                static_cast<size_t>(at.total - at.state) * sizeof(float));
  }
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
    ChunkRows rows = RowsOfChunk(s, c, chunk);
    TellOfState(s, c, true, begins_with, false, rows);
    for (int64_t h = 0; h < task.heads; ++h) {
      QueryChunk({task, s, rows, at, w, task.first_head + h});
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
