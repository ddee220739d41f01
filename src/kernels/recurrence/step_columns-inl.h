// One token's rows, and passes over columns of a state that they change or
// read: what the rules of a step (step-inl.h) are made of.

#if defined(TARN_KERNELS_RECURRENCE_STEP_COLUMNS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_RECURRENCE_STEP_COLUMNS_INL_H_
#undef TARN_KERNELS_RECURRENCE_STEP_COLUMNS_INL_H_
#else
#define TARN_KERNELS_RECURRENCE_STEP_COLUMNS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/prefetch_to_write.h"
#include "kernels/recurrence/chunk-inl.h"
#include "kernels/recurrence/step.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Keys handled at a time, so that their rows live on the stack.
constexpr int64_t kStepKeys = 256;
// Value columns handled at a time: four AVX-512 vectors.
constexpr int64_t kStepColumns = 64;

// A block of one token's scaled query, its key and its decays.
struct StepRows {
  HWY_ALIGN float query[kStepKeys];
  HWY_ALIGN float key[kStepKeys];
  HWY_ALIGN float decay[kStepKeys];
  HWY_ALIGN float read[kStepKeys];  // the low-rank pair, if there is one
  HWY_ALIGN float write[kStepKeys];
};

HWY_MAYBE_UNUSED static void LoadStepBlock(const RecurrentStepTask& task,
                                           int64_t t, int64_t block,
                                           StepRows& rows) {
  const DF d;
  const RecurrentInputs& in = *task.in;
  const int64_t width = std::min(kStepKeys, in.keys.size[3] - block);
  const int64_t skip = block * static_cast<int64_t>(DTypeBytes(in.keys.dtype));
  LoadRow(in.keys.dtype, in.keys.Row(task.batch, t, task.head) + skip, width,
          rows.key);
  LoadRow(in.queries.dtype, in.queries.Row(task.batch, t, task.head) + skip,
          width, rows.query);
  if (task.options->scale != 1.0f) {
    ScaleRow(rows.query, PadRow(width), task.options->scale);
  }
  if (in.HasPair()) {
    LoadRow(in.reads.dtype, in.reads.Row(task.batch, t, task.head) + skip,
            width, rows.read);
    LoadRow(in.writes.dtype, in.writes.Row(task.batch, t, task.head) + skip,
            width, rows.write);
  }
  const int64_t padded = PadRow(width);
  if (in.VectorGates()) {
    const int64_t gate_skip =
        block * static_cast<int64_t>(DTypeBytes(in.gates.dtype));
    LoadRow(in.gates.dtype,
            in.gates.Row(task.batch, t, task.value_head) + gate_skip, width,
            rows.decay);
    for (int64_t k = 0; k < padded; k += kLanes) {
      hn::StoreU(DecayFactor(hn::LoadU(d, rows.decay + k)), d, rows.decay + k);
    }
    return;
  }
  VF decay = hn::Set(d, 1.0f);
  if (in.HasGates()) {
    decay = DecayFactor(
        hn::Set(d, LoadNumber(in.gates.dtype,
                              in.gates.Row(task.batch, t, task.value_head))));
  } else if (in.head_gates != nullptr) {
    decay = DecayFactor(hn::Set(d, in.head_gates[task.value_head]));
  }
  for (int64_t k = 0; k < padded; k += kLanes) {
    hn::StoreU(decay, d, rows.decay + k);
  }
}

// The output of step t, whose row is far from those of the steps before it.
HWY_INLINE void PrefetchOutput(const RecurrentStepTask& task, int64_t t) {
  if (t >= task.tokens) return;
  const TensorView& out = *task.out;
  PrefetchToWrite(out.Row(task.batch, t, task.value_head),
                  out.size[3] * static_cast<int64_t>(DTypeBytes(out.dtype)));
}

// What a pass over columns of a state does. With x = gamma S:
//   kInclusive: S' = x + k v, out += q S'
//   kExclusive: S' = x + k v, out += q S
//   kPredict:   out += q x, prediction += k x
//   kWrite:     S' = x + k v   (v: the delta rule's u)
//   kReadPair:  out += q x, prediction += c S
//   kWritePair: S' = x + b prediction + k v
enum class StepPass {
  kInclusive,
  kExclusive,
  kPredict,
  kWrite,
  kReadPair,
  kWritePair
};
constexpr bool Writes(StepPass pass) {
  return pass == StepPass::kWrite || pass == StepPass::kWritePair;
}
constexpr bool Predicts(StepPass pass) {
  return pass == StepPass::kPredict || pass == StepPass::kReadPair;
}

struct StepColumns {
  const float* values;
  const float* old;
  float* state;
  float* out;
  float* prediction;
  int64_t ld;    // of the state
  int64_t next;  // floats to the state to prefetch, 0: none
};

template <StepPass kPass, int kVectors>
HWY_INLINE void PassColumns(const StepRows& rows, int64_t width,
                            const StepColumns& at, int64_t c) {
  const DF d;
  VF v[kVectors], sum[kVectors], odd[kVectors], guess[kVectors];
  HWY_UNROLL(4)
  for (int i = 0; i < kVectors; ++i) {
    v[i] = hn::LoadU(d, at.values + c + i * kLanes);
    sum[i] = hn::LoadU(d, at.out + c + i * kLanes);
    odd[i] = hn::Zero(d);
    guess[i] = hn::LoadU(d, at.prediction + c + i * kLanes);
  }
  const auto update = [&](int64_t k, VF* into) HWY_ATTR {
    const VF key = hn::Set(d, rows.key[k]);
    const VF query = hn::Set(d, rows.query[k]);
    const VF decay = hn::Set(d, rows.decay[k]);
    const int64_t row = k * at.ld + c;
    if (!Writes(kPass) && at.next != 0) {
      HWY_UNROLL(4)
      for (int i = 0; i < kVectors; ++i) {
        __builtin_prefetch(at.old + at.next + row + i * kLanes, 1, 2);
      }
    }
    HWY_UNROLL(4)
    for (int i = 0; i < kVectors; ++i) {
      const VF before = hn::LoadU(d, at.old + row + i * kLanes);
      const VF left = hn::Mul(decay, before);
      if (Predicts(kPass)) {
        into[i] = hn::MulAdd(query, left, into[i]);
        guess[i] = kPass == StepPass::kPredict
                       ? hn::MulAdd(key, left, guess[i])
                       : hn::MulAdd(hn::Set(d, rows.read[k]), before, guess[i]);
        continue;
      }
      VF after = hn::MulAdd(key, v[i], left);
      if (kPass == StepPass::kWritePair) {
        after = hn::MulAdd(hn::Set(d, rows.write[k]), guess[i], after);
      }
      hn::StoreU(after, d, at.state + row + i * kLanes);
      if (kPass == StepPass::kInclusive) {
        into[i] = hn::MulAdd(query, after, into[i]);
      } else if (kPass == StepPass::kExclusive) {
        into[i] = hn::MulAdd(query, before, into[i]);
      }
    }
  };
  int64_t k = 0;
  for (; k + 2 <= width; k += 2) {
    update(k, sum);
    update(k + 1, odd);
  }
  if (k < width) update(k, sum);
  if (Writes(kPass)) return;
  HWY_UNROLL(4)
  for (int i = 0; i < kVectors; ++i) {
    hn::StoreU(hn::Add(sum[i], odd[i]), d, at.out + c + i * kLanes);
    if (Predicts(kPass)) {
      hn::StoreU(guess[i], d, at.prediction + c + i * kLanes);
    }
  }
}

// Columns that do not fill a vector, one by one.
template <StepPass kPass>
HWY_INLINE void PassTail(const StepRows& rows, int64_t width,
                         const StepColumns& at, int64_t c, int64_t columns) {
  for (int64_t k = 0; k < width; ++k) {
    for (int64_t i = c; i < columns; ++i) {
      const float before = at.old[k * at.ld + i];
      const float left = rows.decay[k] * before;
      if (Predicts(kPass)) {
        at.out[i] += rows.query[k] * left;
        at.prediction[i] += kPass == StepPass::kPredict ? rows.key[k] * left
                                                        : rows.read[k] * before;
        continue;
      }
      float after = left + rows.key[k] * at.values[i];
      if (kPass == StepPass::kWritePair) {
        after += rows.write[k] * at.prediction[i];
      }
      at.state[k * at.ld + i] = after;
      if (kPass == StepPass::kInclusive) at.out[i] += rows.query[k] * after;
      if (kPass == StepPass::kExclusive) at.out[i] += rows.query[k] * before;
    }
  }
}

template <StepPass kPass>
HWY_INLINE void PassBlock(const StepRows& rows, int64_t width,
                          const StepColumns& at, int64_t columns) {
  int64_t c = 0;
  for (; c + 4 * kLanes <= columns; c += 4 * kLanes) {
    PassColumns<kPass, 4>(rows, width, at, c);
  }
  for (; c + 2 * kLanes <= columns; c += 2 * kLanes) {
    PassColumns<kPass, 2>(rows, width, at, c);
  }
  for (; c + kLanes <= columns; c += kLanes) {
    PassColumns<kPass, 1>(rows, width, at, c);
  }
  PassTail<kPass>(rows, width, at, c, columns);
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
