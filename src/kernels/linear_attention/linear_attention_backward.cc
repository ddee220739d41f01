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

static void QueryChunk(const ChunkContext& c) {
  const LinearAttentionInputs& in = *c.task.in;
  const BackwardLayout& at = c.at;
  float* w = c.w;
  const bool has_keys = c.rows.has_keys();
  if (has_keys) {
    LoadKeys(*c.task.options, in, c.s, c.rows, c.head, at.chunk, w + at.keys,
             at.key);
  }
  float* da = w + at.grad_row;
  std::memset(da, 0, static_cast<size_t>(at.chunk * at.key) * sizeof(float));
  const bool keys_finite =
      has_keys && AllFinite(w + at.keys, c.rows.rows * at.key);
  for (int64_t g = 0; g < c.task.group; ++g) {
    const int64_t value_head = c.head * c.task.group + g;
    float* state_t = c.State(g);  // [value, key]
    float* normalizer = c.Normalizer(g);
    if (has_keys) {
      LoadValues(in, c.s, c.rows, value_head, 0, in.values.size[3], at.chunk,
                 w + at.values, at.value);
    }
    if (c.rows.has_queries()) {
      LoadGradOut(c, value_head);
      MatMul({w + at.grad_out, at.value, 1}, state_t, at.key, da, at.key,
             c.rows.rows, at.key, at.value, /*accumulate=*/true);
      if (c.task.options->denominator != Denominator::kNone) {
        for (int64_t r = c.rows.query_begin; r < c.rows.query_end; ++r) {
          AddScaledRow(w[at.grad_den + r], normalizer, at.key, da + r * at.key);
        }
      }
      if (has_keys) {
        Transpose(w + at.values, at.value, at.chunk, at.value, w + at.values_t,
                  at.chunk);
        GradScores(c);
        LowerTimes(w + at.grad_scores, at.chunk, w + at.keys, at.key,
                   c.rows.rows, at.key, da, at.key, keys_finite);
      }
    }
    if (has_keys) {
      MatMul({w + at.values, 1, at.value}, w + at.keys, at.key, state_t, at.key,
             at.value, at.key, c.rows.key_end, /*accumulate=*/true);
      for (int64_t r = c.rows.key_begin; r < c.rows.key_end; ++r) {
        AddRow(w + at.keys + r * at.key, at.key, normalizer);
      }
    }
  }
  const TensorView& dq = c.task.grad->grad_queries;
  float* features = w + at.queries;
  for (int64_t r = c.rows.query_begin; r < c.rows.query_end; ++r) {
    const int64_t t = c.s.query_at + c.rows.position + r - c.s.offset;
    LoadFeatures(c.task.options->feature_map, in.queries.dtype,
                 in.queries.Row(c.s.batch, t, c.head), in.queries.size[3],
                 features);
    const float factor = QueryFactor(*c.task.options, features, at.key);
    StoreFeatureGradient(c.task.options->feature_map, features, da + r * at.key,
                         factor, at.key, features);
    char* to = dq.Row(c.s.batch, t, c.head);
    PrefetchRow<1>(dq, to, c.s.ahead, in.queries.size[3]);
    StoreRow(dq.dtype, features, in.queries.size[3], to);
  }
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
    float* state_t = w + at.state + g * at.key * at.value;
    for (int64_t k = 0; k < d_key; ++k) {
      for (int64_t v = 0; v < d_value; ++v) {
        state_t[v * at.key + k] = from[k * d_value + v];
      }
    }
    LoadState(in.initial_z + row * d_key, 1, d_key, 0, d_key,
              w + at.normalizer + g * at.key, 1, at.key);
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

// dv of one value head, and db += into grad_row; P is in `scores`.
static void KeyChunkValueHead(const ChunkContext& c, int64_t g, bool finite) {
  const LinearAttentionInputs& in = *c.task.in;
  const BackwardLayout& at = c.at;
  float* w = c.w;
  const int64_t value_head = c.head * c.task.group + g;
  const float* state = c.State(g);  // R [key, value]
  const float* normalizer = c.Normalizer(g);
  LoadValues(in, c.s, c.rows, value_head, 0, in.values.size[3], at.chunk,
             w + at.values, at.value);
  Transpose(w + at.values, at.value, at.chunk, at.value, w + at.values_t,
            at.chunk);
  // V R^T as (R V^T)^T: lanes run over tokens, so R needs no transpose.
  MatMul({state, at.value, 1}, w + at.values_t, at.chunk, w + at.grad_col,
         at.chunk, at.key, at.chunk, at.value, /*accumulate=*/false);
  // keys_t is free again: the scores are done.
  Transpose(w + at.grad_col, at.chunk, at.key, at.chunk, w + at.keys_t, at.key);
  float* db = w + at.grad_row;
  AddRow(w + at.keys_t, at.chunk * at.key, db);
  // Without a denominator this still carries the gradient of the final z.
  for (int64_t r = c.rows.key_begin; r < c.rows.key_end; ++r) {
    AddRow(normalizer, at.key, db + r * at.key);
  }
  // dv = b R, then P^T G.
  float* dv = w + at.grad_col;
  if (c.rows.has_queries()) LoadGradOut(c, value_head);
  MatMul({w + at.keys, at.key, 1}, state, at.value, dv, at.value, c.rows.rows,
         at.value, at.key, /*accumulate=*/false);
  if (c.rows.has_queries()) {
    const bool all_finite =
        finite && AllFinite(w + at.grad_out, c.rows.rows * at.value);
    LowerTransposedTimes(w + at.scores, at.chunk, w + at.grad_out, at.value,
                         c.rows.rows, at.value, dv, at.value, all_finite);
    GradScores(c);
    LowerTransposedTimes(w + at.grad_scores, at.chunk, w + at.queries, at.key,
                         c.rows.rows, at.key, db, at.key, all_finite);
  }
  const TensorView& out = c.task.grad->grad_values;
  for (int64_t r = c.rows.key_begin; r < c.rows.key_end; ++r) {
    const int64_t key = c.rows.position + r;
    if (!KeyKept(in, c.s, key)) continue;
    char* to = out.Row(c.s.batch, c.s.key_at + key, value_head);
    PrefetchRow<1>(out, to, c.s.ahead, in.values.size[3]);
    StoreRow(out.dtype, dv + r * at.value, in.values.size[3], to);
  }
}

// R += a^T G, r += a^T e: the chunk's queries, for the keys before it.
static void AddQueriesToState(const ChunkContext& c, int64_t g) {
  const BackwardLayout& at = c.at;
  float* w = c.w;
  MatMul({w + at.queries, 1, at.key}, w + at.grad_out, at.value, c.State(g),
         at.value, at.key, at.value, c.rows.query_end,
         /*accumulate=*/true);
  if (c.task.options->denominator == Denominator::kNone) return;
  for (int64_t r = c.rows.query_begin; r < c.rows.query_end; ++r) {
    AddScaledRow(w[at.grad_den + r], w + at.queries + r * at.key, at.key,
                 c.Normalizer(g));
  }
}

static void KeyChunk(const ChunkContext& c) {
  const LinearAttentionInputs& in = *c.task.in;
  const BackwardLayout& at = c.at;
  float* w = c.w;
  const bool has_keys = c.rows.has_keys(), has_queries = c.rows.has_queries();
  bool finite = true;
  if (has_queries) {
    LoadQueries(*c.task.options, in, c.s, c.rows, c.head, at.chunk,
                w + at.queries, at.key, w + at.factors);
    finite = AllFinite(w + at.queries, c.rows.rows * at.key);
  }
  if (has_keys) {
    LoadKeys(*c.task.options, in, c.s, c.rows, c.head, at.chunk, w + at.keys,
             at.key);
    std::memset(w + at.grad_row, 0,
                static_cast<size_t>(at.chunk * at.key) * sizeof(float));
  }
  if (has_keys && has_queries) {
    Transpose(w + at.keys, at.key, at.chunk, at.key, w + at.keys_t, at.chunk);
    LowerScores(w + at.queries, at.key, w + at.keys_t, at.chunk, c.rows.rows,
                at.key, w + at.scores);
    MaskDiagonal(w + at.scores, at.chunk, c.rows.rows);
  }
  for (int64_t g = 0; g < c.task.group; ++g) {
    if (has_keys) {
      KeyChunkValueHead(c, g, finite);
    } else if (has_queries) {
      LoadGradOut(c, c.head * c.task.group + g);
    }
    if (has_queries) AddQueriesToState(c, g);
  }
  ZeroKeyGradients(c);
  const TensorView& dk = c.task.grad->grad_keys;
  for (int64_t r = c.rows.key_begin; r < c.rows.key_end; ++r) {
    const int64_t key = c.rows.position + r;
    if (!KeyKept(in, c.s, key)) continue;
    float* row = w + at.grad_row + r * at.key;
    StoreFeatureGradient(c.task.options->feature_map, w + at.keys + r * at.key,
                         row, 1.0f, at.key, row);
    char* to = dk.Row(c.s.batch, c.s.key_at + key, c.head);
    PrefetchRow<1>(dk, to, c.s.ahead, in.keys.size[3]);
    StoreRow(dk.dtype, row, in.keys.size[3], to);
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
              d_value, w + at.state + g * at.key * at.value, at.key, at.value);
    LoadState(part(grad.grad_final_z, g, d_key), 1, d_key, 0, d_key,
              w + at.normalizer + g * at.key, 1, at.key);
  }
  for (int64_t c = s.last_chunk - 1; c >= s.first_chunk; --c) {
    const ChunkRows rows = RowsOfChunk(s, c, chunk);
    for (int64_t h = 0; h < task.heads; ++h) {
      KeyChunk({task, s, rows, at, w, task.first_head + h});
    }
  }
  for (int64_t g = 0; g < states; ++g) {
    StoreState(w + at.state + g * at.key * at.value, at.value, d_key, d_value,
               0, d_value, part(grad.grad_initial_S, g, d_key * d_value));
    StoreState(w + at.normalizer + g * at.key, at.key, 1, d_key, 0, d_key,
               part(grad.grad_initial_z, g, d_key));
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
    if (given.Shape() != wanted.Shape() || given.dtype != wanted.dtype) {
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
