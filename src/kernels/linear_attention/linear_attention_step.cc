// Recurrent form: one pass over the state per token, S read and written once.
//   S += phi(k) v^T;  z += phi(k);  o = S^T phi(q) / z . phi(q)
// (Katharopoulos et al. 2020, eq. 18-20: update, then read.)
#include <algorithm>
#include <cstdint>

#include "core/error.h"
#include "kernels/linear_attention/linear_attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear_attention/linear_attention_step.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/linear_attention/chunk-inl.h"

#ifndef TARN_LINEAR_ATTENTION_STEP_ONCE
#define TARN_LINEAR_ATTENTION_STEP_ONCE
namespace tarn {
// One head of one row over some tokens, in order.
struct StepTask {
  const LinearAttentionOptions* options;
  const TensorView *queries, *keys, *values, *out;
  int64_t batch, head, value_head;
  // [d_key, d_value], [d_key], dense: before the first token, and after each.
  const float *old_state, *old_normalizer;
  float *state, *normalizer;
};
}  // namespace tarn
#endif

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

// Keys handled at a time, so that features live on the stack.
constexpr int64_t kKeyBlock = 256;
// Value columns handled at a time: four AVX-512 vectors.
constexpr int64_t kColumns = 64;

// Features of a block of one token's key and (scaled) query.
struct Features {
  HWY_ALIGN float query[kKeyBlock];
  HWY_ALIGN float key[kKeyBlock];
};

static void LoadBlock(const StepTask& task, int64_t t, int64_t block,
                      float factor, Features& f) {
  const FeatureMap map = task.options->feature_map;
  const int64_t width = std::min(kKeyBlock, task.keys->size[3] - block);
  const DType dtype = task.keys->dtype;
  const int64_t skip = block * static_cast<int64_t>(DTypeBytes(dtype));
  LoadFeatures(map, dtype, task.keys->Row(task.batch, t, task.head) + skip,
               width, f.key);
  LoadFeatures(map, dtype, task.queries->Row(task.batch, t, task.head) + skip,
               width, f.query);
  if (factor != 1.0f) ScaleRow(f.query, PadRow(width), factor);
}

// The factor of the query's features. Leaves them scaled in f, with the key's,
// when they all fit one block.
static float Factor(const StepTask& task, int64_t t, Features& f) {
  const int64_t d_key = task.keys->size[3];
  const bool exact = task.options->denominator == Denominator::kExact;
  if (d_key <= kKeyBlock) {
    LoadBlock(task, t, 0, 1.0f, f);
    const float factor =
        exact ? PowerOfTwoScale(RowMaxAbs(f.query, PadRow(d_key)))
              : task.options->scale;
    if (factor != 1.0f) ScaleRow(f.query, PadRow(d_key), factor);
    return factor;
  }
  if (!exact) return task.options->scale;
  float largest = 0.0f;
  for (int64_t block = 0; block < d_key; block += kKeyBlock) {
    LoadBlock(task, t, block, 1.0f, f);
    largest = std::max(
        largest,
        RowMaxAbs(f.query, PadRow(std::min(kKeyBlock, d_key - block))));
  }
  return PowerOfTwoScale(largest);
}

// z += phi(k) and 1 / (z . phi(q)); 0 for an empty row.
static float UpdateNormalizer(const StepTask& task, int64_t t, float factor,
                              Features& f) {
  const float* from = t == 0 ? task.old_normalizer : task.normalizer;
  const int64_t d_key = task.keys->size[3];
  float denominator = 0.0f;
  HWY_ALIGN float z[kKeyBlock];
  for (int64_t block = 0; block < d_key; block += kKeyBlock) {
    const int64_t width = std::min(kKeyBlock, d_key - block);
    if (d_key > kKeyBlock) LoadBlock(task, t, block, factor, f);
    LoadRow(DType::kF32, from + block, width, z);
    AddRow(f.key, PadRow(width), z);
    StoreRow(DType::kF32, z, width, task.normalizer + block);
    denominator += RowDot(f.query, z, PadRow(width));
  }
  switch (task.options->denominator) {
    case Denominator::kNone:
      return 1.0f;
    case Denominator::kCompat:
      return 1.0f / (denominator + task.options->eps);
    case Denominator::kExact:
    case Denominator::kSigned:  // refused by the checks
      break;
  }
  denominator = ExactDenominator(denominator);
  return denominator == 0.0f ? 0.0f : 1.0f / denominator;
}

// kVectors columns of S, from `old` into `state`; acc gets S^T phi(q). Even and
// odd keys have sums of their own: twice as many chains hide the latency of a
// multiply-add where columns are few.
template <int kVectors>
HWY_INLINE void UpdateColumns(const Features& f, int64_t width,
                              const float* values, const float* old,
                              float* state, int64_t ld, int64_t next,
                              float* acc) {
  const DF d;
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(DF()));
  VF v[kVectors], sum[kVectors], odd[kVectors];
  HWY_UNROLL(4)
  for (int i = 0; i < kVectors; ++i) {
    v[i] = hn::LoadU(d, values + i * kLanes);
    sum[i] = hn::LoadU(d, acc + i * kLanes);
    odd[i] = hn::Zero(d);
  }
  const auto update = [&](int64_t k, VF* into) HWY_ATTR {
    const VF key = hn::Set(d, f.key[k]);
    const VF query = hn::Set(d, f.query[k]);
    const int64_t at = k * ld;
    if (next != 0) {
      HWY_UNROLL(4)
      for (int i = 0; i < kVectors; ++i) {
        __builtin_prefetch(old + next + at + i * kLanes, 1, 2);
      }
    }
    HWY_UNROLL(4)
    for (int i = 0; i < kVectors; ++i) {
      const VF s = hn::MulAdd(key, v[i], hn::LoadU(d, old + at + i * kLanes));
      hn::StoreU(s, d, state + at + i * kLanes);
      into[i] = hn::MulAdd(query, s, into[i]);
    }
  };
  int64_t k = 0;
  for (; k + 2 <= width; k += 2) {
    update(k, sum);
    update(k + 1, odd);
  }
  if (k < width) update(k, sum);
  HWY_UNROLL(4)
  for (int i = 0; i < kVectors; ++i) {
    hn::StoreU(hn::Add(sum[i], odd[i]), d, acc + i * kLanes);
  }
}

// Columns that do not fill a vector, one by one.
static void UpdateTail(const Features& f, int64_t width, const float* values,
                       int64_t columns, const float* old, float* state,
                       int64_t ld, float* acc) {
  for (int64_t k = 0; k < width; ++k) {
    const float* from = old + k * ld;
    float* row = state + k * ld;
    for (int64_t c = 0; c < columns; ++c) {
      row[c] = from[c] + f.key[k] * values[c];
      acc[c] += f.query[k] * row[c];
    }
  }
}

static void UpdateBlock(const Features& f, int64_t width, const float* values,
                        int64_t columns, const float* old, float* state,
                        int64_t ld, int64_t next, float* acc) {
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(DF()));
  int64_t c = 0;
  for (; c + 4 * kLanes <= columns; c += 4 * kLanes) {
    UpdateColumns<4>(f, width, values + c, old + c, state + c, ld, next,
                     acc + c);
  }
  for (; c + 2 * kLanes <= columns; c += 2 * kLanes) {
    UpdateColumns<2>(f, width, values + c, old + c, state + c, ld, next,
                     acc + c);
  }
  for (; c + kLanes <= columns; c += kLanes) {
    UpdateColumns<1>(f, width, values + c, old + c, state + c, ld, next,
                     acc + c);
  }
  UpdateTail(f, width, values + c, columns - c, old + c, state + c, ld,
             acc + c);
}

static void StepToken(const StepTask& task, int64_t t) {
  Features f;
  const float* old = t == 0 ? task.old_state : task.state;
  const int64_t d_key = task.keys->size[3], d_value = task.values->size[3];
  const DType dtype = task.values->dtype;
  const float factor = Factor(task, t, f);
  const float inverse = UpdateNormalizer(task, t, factor, f);
  HWY_ALIGN float values[kColumns];
  HWY_ALIGN float acc[kColumns];
  // A step meets each state once: while one head's is updated, the next one's
  // is prefetched into L2. (The hardware stops at the end of a page, which is
  // often exactly one head.)
  const int64_t next = task.queries->size[1] == 1 ? d_key * d_value : 0;
  for (int64_t column = 0; column < d_value; column += kColumns) {
    const int64_t columns = std::min(kColumns, d_value - column);
    const int64_t skip = column * static_cast<int64_t>(DTypeBytes(dtype));
    LoadRow(dtype, task.values->Row(task.batch, t, task.value_head) + skip,
            columns, values);
    ZeroRows(acc, 0, 1, kColumns);
    for (int64_t block = 0; block < d_key; block += kKeyBlock) {
      // With a single block, its features are still in f.
      if (d_key > kKeyBlock) LoadBlock(task, t, block, factor, f);
      UpdateBlock(f, std::min(kKeyBlock, d_key - block), values, columns,
                  old + block * d_value + column,
                  task.state + block * d_value + column, d_value, next, acc);
    }
    if (inverse == 0.0f) {
      ZeroRows(acc, 0, 1, kColumns);
    } else if (inverse != 1.0f) {
      ScaleRow(acc, kColumns, inverse);
    }
    StoreRow(dtype, acc, columns,
             task.out->Row(task.batch, t, task.value_head) + skip);
  }
}

static void StepHead(const StepTask& task) {
  for (int64_t t = 0; t < task.queries->size[1]; ++t) StepToken(task, t);
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(StepHead);

namespace {

// State entries below which waking workers costs more than it saves (20 us).
constexpr int64_t kInlineWork = 131072;

void RunSteps(const LinearAttentionOptions& options, const TensorView& queries,
              const TensorView& keys, const TensorView& values,
              const LinearAttentionState& state, const TensorView& out,
              Executor& executor) {
  const int64_t heads = queries.size[2], value_heads = values.size[2];
  const int64_t d_key = keys.size[3], d_value = values.size[3];
  const int64_t tasks = queries.size[0] * value_heads;
  const auto run = [&](int64_t row, int) {
    const int64_t value_head = row % value_heads;
    const int64_t S = row * d_key * d_value, z = row * d_key;
    HWY_DYNAMIC_DISPATCH(StepHead)
    ({&options, &queries, &keys, &values, &out, row / value_heads,
      value_head / (value_heads / heads), value_head, state.S + S, state.z + z,
      state.next_S + S, state.next_z + z});
  };
  if (tasks * d_key * d_value * queries.size[1] < kInlineWork) {
    SerialExecutor().ParallelFor(tasks, run);
  } else {
    executor.ParallelFor(tasks, run);
  }
}

void CheckStep(const LinearAttentionOptions& options, const TensorView& queries,
               const TensorView& keys, const TensorView& values,
               const LinearAttentionState& state, const TensorView& out) {
  LinearAttentionInputs in;
  in.queries = queries;
  in.keys = keys;
  in.values = values;
  CheckLinearAttention(options, in, {.out = out});
  if (keys.size[1] != queries.size[1]) {
    throw ShapeError("linear_attention step: keys", ShapeText(queries.Shape()),
                     ShapeText(keys.Shape()));
  }
  if (queries.size[0] > 0 &&
      (state.S == nullptr || state.z == nullptr || state.next_S == nullptr ||
       state.next_z == nullptr)) {
    throw ArgumentError("linear_attention step: state", "S and z",
                        "a null pointer");
  }
}

}  // namespace

void LinearAttentionStepInto(const LinearAttentionOptions& options,
                             const TensorView& queries, const TensorView& keys,
                             const TensorView& values,
                             const LinearAttentionState& state,
                             const TensorView& out, Executor& executor) {
  CheckStep(options, queries, keys, values, state, out);
  if (queries.size[1] != 1) {
    throw ShapeError("linear_attention step: queries", "[B, 1, H, K]",
                     ShapeText(queries.Shape()));
  }
  RunSteps(options, queries, keys, values, state, out, executor);
}

void LinearAttentionStep(const LinearAttentionOptions& options,
                         const TensorView& queries, const TensorView& keys,
                         const TensorView& values, float* state_S,
                         float* state_z, const TensorView& out,
                         Executor& executor) {
  LinearAttentionStepInto(options, queries, keys, values,
                          {state_S, state_z, state_S, state_z}, out, executor);
}

void LinearAttentionPrefill(const LinearAttentionOptions& options,
                            const TensorView& queries, const TensorView& keys,
                            const TensorView& values, float* state_S,
                            float* state_z, const TensorView& out,
                            Executor& executor) {
  const LinearAttentionState state = {state_S, state_z, state_S, state_z};
  CheckStep(options, queries, keys, values, state, out);
  RunSteps(options, queries, keys, values, state, out, executor);
}

}  // namespace tarn
#endif  // HWY_ONCE
