// Reads a state and leaves it as it is: cross attention to a memory whose S and
// z were built once.
//   o = S^T phi(q) / z . phi(q)        (Katharopoulos et al. 2020, eq. (20))
#include <algorithm>
#include <cstdint>

#include "core/error.h"
#include "kernels/linear_attention/linear_attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear_attention/linear_attention_read.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/linear_attention/chunk-inl.h"

#ifndef TARN_LINEAR_ATTENTION_READ_ONCE
#define TARN_LINEAR_ATTENTION_READ_ONCE
namespace tarn {
// One head of one row over its queries.
struct ReadTask {
  const LinearAttentionOptions* options;
  const TensorView *queries, *out;
  int64_t batch, head, value_head, d_value;
  const float *state, *normalizer;  // [d_key, d_value], [d_key], dense
};
}  // namespace tarn
#endif

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

// Features handled at a time, and columns: as in linear_attention_step.cc.
constexpr int64_t kReadKeys = 256;
constexpr int64_t kReadColumns = 64;

// The query's features from `block` on, times factor; returns how many.
static int64_t LoadQuery(const ReadTask& task, int64_t t, int64_t block,
                         float factor, float* query) {
  const int64_t width = std::min(kReadKeys, task.queries->size[3] - block);
  const DType dtype = task.queries->dtype;
  const int64_t skip = block * static_cast<int64_t>(DTypeBytes(dtype));
  LoadFeatures(task.options->feature_map, dtype,
               task.queries->Row(task.batch, t, task.head) + skip, width,
               query);
  if (factor != 1.0f) ScaleRow(query, PadRow(width), factor);
  return width;
}

static float ReadFactor(const ReadTask& task, int64_t t, float* query) {
  if (task.options->denominator != Denominator::kExact) {
    return task.options->scale;
  }
  float largest = 0.0f;
  for (int64_t k = 0; k < task.queries->size[3]; k += kReadKeys) {
    const int64_t width = LoadQuery(task, t, k, 1.0f, query);
    largest = std::max(largest, RowMaxAbs(query, PadRow(width)));
  }
  return PowerOfTwoScale(largest);
}

// 1 / (z . phi(q)); 0 for an empty row.
static float InverseDenominator(const ReadTask& task, int64_t t, float factor,
                                float* query) {
  if (task.options->denominator == Denominator::kNone) return 1.0f;
  HWY_ALIGN float z[kReadKeys];
  float denominator = 0.0f;
  for (int64_t k = 0; k < task.queries->size[3]; k += kReadKeys) {
    const int64_t width = LoadQuery(task, t, k, factor, query);
    LoadRow(DType::kF32, task.normalizer + k, width, z);
    denominator += RowDot(query, z, PadRow(width));
  }
  if (task.options->denominator == Denominator::kCompat) {
    return 1.0f / (denominator + task.options->eps);
  }
  denominator = ExactDenominator(denominator);
  return denominator == 0.0f ? 0.0f : 1.0f / denominator;
}

// acc += S^T phi(q) over `width` features, kVectors columns at a time. Even and
// odd features have sums of their own, to hide a multiply-add's latency.
template <int kVectors>
HWY_INLINE void ReadVectors(const float* query, int64_t width,
                            const float* state, int64_t ld, float* acc) {
  const DF d;
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(DF()));
  VF even[kVectors], odd[kVectors];
  HWY_UNROLL(4)
  for (int i = 0; i < kVectors; ++i) {
    even[i] = hn::LoadU(d, acc + i * kLanes);
    odd[i] = hn::Zero(d);
  }
  const auto add = [&](int64_t k, VF* into) HWY_ATTR {
    const VF q = hn::Set(d, query[k]);
    HWY_UNROLL(4)
    for (int i = 0; i < kVectors; ++i) {
      into[i] =
          hn::MulAdd(q, hn::LoadU(d, state + k * ld + i * kLanes), into[i]);
    }
  };
  int64_t k = 0;
  for (; k + 2 <= width; k += 2) {
    add(k, even);
    add(k + 1, odd);
  }
  if (k < width) add(k, even);
  HWY_UNROLL(4)
  for (int i = 0; i < kVectors; ++i) {
    hn::StoreU(hn::Add(even[i], odd[i]), d, acc + i * kLanes);
  }
}

static void ReadBlock(const float* query, int64_t width, const float* state,
                      int64_t columns, int64_t ld, float* acc) {
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(DF()));
  int64_t c = 0;
  for (; c + 4 * kLanes <= columns; c += 4 * kLanes) {
    ReadVectors<4>(query, width, state + c, ld, acc + c);
  }
  for (; c + kLanes <= columns; c += kLanes) {
    ReadVectors<1>(query, width, state + c, ld, acc + c);
  }
  for (; c < columns; ++c) {
    for (int64_t k = 0; k < width; ++k) acc[c] += query[k] * state[k * ld + c];
  }
}

static void ReadToken(const ReadTask& task, int64_t t) {
  HWY_ALIGN float query[kReadKeys];
  HWY_ALIGN float acc[kReadColumns];
  const int64_t d_key = task.queries->size[3], d_value = task.d_value;
  const DType dtype = task.out->dtype;
  const float factor = ReadFactor(task, t, query);
  const float inverse = InverseDenominator(task, t, factor, query);
  if (d_key <= kReadKeys) LoadQuery(task, t, 0, factor, query);
  for (int64_t column = 0; column < d_value; column += kReadColumns) {
    const int64_t columns = std::min(kReadColumns, d_value - column);
    ZeroRows(acc, 0, 1, kReadColumns);
    for (int64_t k = 0; inverse != 0.0f && k < d_key; k += kReadKeys) {
      if (d_key > kReadKeys) LoadQuery(task, t, k, factor, query);
      ReadBlock(query, std::min(kReadKeys, d_key - k),
                task.state + k * d_value + column, columns, d_value, acc);
    }
    if (inverse != 1.0f) ScaleRow(acc, kReadColumns, inverse);
    StoreRow(dtype, acc, columns,
             task.out->Row(task.batch, t, task.value_head) +
                 column * static_cast<int64_t>(DTypeBytes(dtype)));
  }
}

static void ReadHead(const ReadTask& task) {
  for (int64_t t = 0; t < task.queries->size[1]; ++t) ReadToken(task, t);
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(ReadHead);

namespace {

void CheckRead(const LinearAttentionOptions& options, const TensorView& queries,
               const float* state_S, const float* state_z,
               const TensorView& out) {
  // With no keys and no values, the checks of the whole operator are those of a
  // read.
  TensorView none = queries, values = out;
  none.size[1] = values.size[1] = 0;
  LinearAttentionInputs in;
  in.queries = queries;
  in.keys = none;
  in.values = values;
  CheckLinearAttention(options, in, {.out = out});
  if (queries.size[0] > 0 && queries.size[1] > 0 &&
      (state_S == nullptr || state_z == nullptr)) {
    throw ArgumentError("linear_attention read: state", "S and z",
                        "a null pointer");
  }
}

}  // namespace

void LinearAttentionRead(const LinearAttentionOptions& options,
                         const TensorView& queries, const float* state_S,
                         const float* state_z, const TensorView& out,
                         Executor& executor) {
  CheckRead(options, queries, state_S, state_z, out);
  const int64_t heads = queries.size[2], value_heads = out.size[2];
  const int64_t d_key = queries.size[3], d_value = out.size[3];
  const int64_t tasks = queries.size[0] * value_heads;
  const auto run = [&](int64_t row, int) {
    const int64_t value_head = row % value_heads;
    HWY_DYNAMIC_DISPATCH(ReadHead)
    ({&options, &queries, &out, row / value_heads,
      value_head / (value_heads / heads), value_head, d_value,
      state_S + row * d_key * d_value, state_z + row * d_key});
  };
  // State entries below which waking workers costs more than it saves (20 us).
  constexpr int64_t kInlineWork = 131072;
  if (tasks * d_key * d_value * queries.size[1] < kInlineWork) {
    SerialExecutor().ParallelFor(tasks, run);
  } else {
    executor.ParallelFor(tasks, run);
  }
}

}  // namespace tarn
#endif  // HWY_ONCE
