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
  int64_t queries, keys, keys_t, values, scores, out, state, normalizer,
      factors, total;
  ForwardLayout(int64_t chunk_tokens, int64_t d_key, int64_t columns,
                int64_t heads) {
    chunk = chunk_tokens;
    key = PadRow(d_key);
    value = PadRow(columns);
    ScratchPlan plan;
    queries = plan.Take(chunk * key);
    keys = plan.Take(chunk * key);
    keys_t = plan.Take(chunk * key);
    values = plan.Take(chunk * value);
    scores = plan.Take(chunk * chunk);
    out = plan.Take(chunk * value);
    factors = plan.Take(chunk);
    state =
        plan.Take(heads * key * value);  // a state for each head of the task
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
  float* state;       // [padded K, padded V]
  float* normalizer;  // [padded K]
};

// Divides the chunk's numerators and stores them.
static void StoreOutputs(const ForwardTask& task, const ForwardHead& head,
                         const Sequence& s, const ChunkRows& rows,
                         const ForwardLayout& at) {
  const LinearAttentionOptions& options = *task.options;
  float* scratch = task.scratch;
  const TensorView& out = task.out->out;
  const int64_t value_heads = task.in->values.size[2];
  for (int64_t r = rows.query_begin; r < rows.query_end; ++r) {
    const int64_t token = s.query_at + rows.position + r - s.offset;
    float* row = scratch + at.out + r * at.value;
    float denominator = 1.0f;
    if (options.denominator != Denominator::kNone) {
      denominator =
          RowDot(scratch + at.queries + r * at.key, head.normalizer, at.key);
      if (rows.has_keys()) {
        denominator += RowSum(scratch + at.scores + r * at.chunk,
                              (r / kBlock + 1) * kBlock);
      }
      if (options.denominator == Denominator::kCompat) {
        denominator += options.eps;
      } else if (denominator <= 0.0f) {  // NaN passes
        denominator = 0.0f;
      }
    }
    if (denominator == 0.0f && options.denominator == Denominator::kExact) {
      ZeroRows(row, 0, 1, at.value);
    } else if (denominator != 1.0f) {
      ScaleRow(row, at.value, 1.0f / denominator);
    }
    char* to = out.Row(s.batch, token, head.value_head) +
               task.column * static_cast<int64_t>(DTypeBytes(out.dtype));
    PrefetchRow<1>(out, to, s.ahead, task.columns);
    StoreRow(out.dtype, row, task.columns, to);
    if (task.out->denominators != nullptr && task.column == 0) {
      task.out->denominators[(s.batch * task.in->queries.size[1] + token) *
                                 value_heads +
                             head.value_head] = denominator;
    }
  }
}

static void ForwardChunk(const ForwardTask& task, const ForwardHead& head,
                         const Sequence& s, const ChunkRows& rows,
                         const ForwardLayout& at) {
  const LinearAttentionInputs& in = *task.in;
  float* w = task.scratch;
  const int64_t key_head =
      head.value_head / (in.values.size[2] / in.keys.size[2]);
  if (rows.has_keys()) {
    LoadKeys(*task.options, in, s, rows, key_head, at.chunk, w + at.keys,
             at.key);
    LoadValues(in, s, rows, head.value_head, task.column, task.columns,
               at.chunk, w + at.values, at.value);
  }
  if (rows.has_queries()) {
    LoadQueries(*task.options, in, s, rows, key_head, at.chunk, w + at.queries,
                at.key, w + at.factors);
    MatMul({w + at.queries, at.key, 1}, head.state, at.value, w + at.out,
           at.value, rows.rows, at.value, at.key, /*accumulate=*/false);
    if (rows.has_keys()) {
      Transpose(w + at.keys, at.key, at.chunk, at.key, w + at.keys_t, at.chunk);
      LowerScores(w + at.queries, at.key, w + at.keys_t, at.chunk, rows.rows,
                  at.key, w + at.scores);
      MaskDiagonal(w + at.scores, at.chunk, rows.rows);
      const bool finite = AllFinite(w + at.values, rows.rows * at.value);
      LowerTimes(w + at.scores, at.chunk, w + at.values, at.value, rows.rows,
                 at.value, w + at.out, at.value, finite);
    }
    StoreOutputs(task, head, s, rows, at);
  }
  if (!rows.has_keys()) return;
  MatMul({w + at.keys, 1, at.key}, w + at.values, at.value, head.state,
         at.value, at.key, at.value, rows.key_end, /*accumulate=*/true);
  for (int64_t r = rows.key_begin; r < rows.key_end; ++r) {
    AddRow(w + at.keys + r * at.key, at.key, head.normalizer);
  }
}

static void ForwardSequence(const ForwardTask& task) {
  const LinearAttentionInputs& in = *task.in;
  const int64_t chunk = ChunkTokens(*task.options);
  const int64_t d_key = in.keys.size[3], d_value = in.values.size[3];
  const ForwardLayout at(chunk, d_key, task.columns, task.heads);
  const Sequence s = SequenceAt(*task.options, in, task.sequence, chunk);
  const auto head_at = [&](int64_t h) {
    return ForwardHead{task.first_head + h,
                       task.scratch + at.state + h * at.key * at.value,
                       task.scratch + at.normalizer + h * at.key};
  };
  const auto part = [&](auto* base, int64_t h, int64_t size) {
    const int64_t row = task.sequence * in.values.size[2] + task.first_head + h;
    return base == nullptr ? nullptr : base + row * size;
  };
  for (int64_t h = 0; h < task.heads; ++h) {
    LoadState(part(in.initial_S, h, d_key * d_value), d_key, d_value,
              task.column, task.columns, head_at(h).state, at.key, at.value);
    LoadState(part(in.initial_z, h, d_key), 1, d_key, 0, d_key,
              head_at(h).normalizer, 1, at.key);
  }
  for (int64_t c = s.first_chunk; c < s.last_chunk; ++c) {
    const ChunkRows rows = RowsOfChunk(s, c, chunk);
    for (int64_t h = 0; h < task.heads; ++h) {
      ForwardChunk(task, head_at(h), s, rows, at);
    }
  }
  for (int64_t h = 0; h < task.heads; ++h) {
    StoreState(head_at(h).state, at.value, d_key, d_value, task.column,
               task.columns, part(task.out->final_S, h, d_key * d_value));
    if (task.column == 0) {
      StoreState(head_at(h).normalizer, at.key, 1, d_key, 0, d_key,
                 part(task.out->final_z, h, d_key));
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(ForwardSequence);

// Defined in linear_attention_backward.cc.
int64_t BackwardScratchFloats(const LinearAttentionOptions& options,
                              const LinearAttentionInputs& in, int width);

namespace {

int64_t ForwardHeads(const LinearAttentionInputs& in, int width) {
  return HeadsPerTask(in.values.size[2], SequenceCount(in), width,
                      in.keys.size[3] * in.values.size[3]);
}

int64_t ForwardScratchFloats(const LinearAttentionOptions& options,
                             const LinearAttentionInputs& in, int width) {
  return ForwardLayout(ChunkTokens(options), in.keys.size[3], in.values.size[3],
                       ForwardHeads(in, width))
      .total;
}

}  // namespace

size_t LinearAttentionWorkspaceBytes(const LinearAttentionOptions& options,
                                     const LinearAttentionInputs& in, int width,
                                     bool backward) {
  const int64_t floats = backward ? BackwardScratchFloats(options, in, width)
                                  : ForwardScratchFloats(options, in, width);
  return static_cast<size_t>(floats) * sizeof(float) *
         static_cast<size_t>(width);
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
  // Columns of S are independent: slices of a multiple of 64 share the work of
  // few heads among the workers and change no bit; each computes the scores.
  int64_t slices = 1;
  if (rows > 0 && rows < width) {
    slices = std::min<int64_t>((d_value + 63) / 64, (width + rows - 1) / rows);
  }
  const int64_t columns = (d_value + slices * 64 - 1) / (slices * 64) * 64;
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
