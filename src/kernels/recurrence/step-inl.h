// Recurrent form of the gated recurrences: tokens one after the other, a state
// read and written once per token. A column of the state meets only its own
// value, so 64 columns at a time stay in cache between the delta rule's two
// passes.

#if defined(TARN_KERNELS_RECURRENCE_STEP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_RECURRENCE_STEP_INL_H_
#undef TARN_KERNELS_RECURRENCE_STEP_INL_H_
#else
#define TARN_KERNELS_RECURRENCE_STEP_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/recurrence/step.h"
#include "kernels/recurrence/step_columns-inl.h"
#include "kernels/recurrence/step_two-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Sum over keys of q k, or of q u k with a bonus.
HWY_MAYBE_UNUSED static float QueryDotKey(const RecurrentStepTask& task,
                                          const StepRows& rows, int64_t block,
                                          int64_t width) {
  const RecurrentInputs& in = *task.in;
  if (in.bonus == nullptr) return RowDot(rows.query, rows.key, PadRow(width));
  HWY_ALIGN float scaled[kStepKeys];
  LoadRow(DType::kF32, in.bonus + task.value_head * in.keys.size[3] + block,
          width, scaled);
  for (int64_t k = 0; k < PadRow(width); k += kLanes) {
    hn::StoreU(
        hn::Mul(hn::LoadU(DF(), scaled + k), hn::LoadU(DF(), rows.query + k)),
        DF(), scaled + k);
  }
  return RowDot(scaled, rows.key, PadRow(width));
}

// The rule of a step: decay_attention (with a bonus or without), the delta
// rule, or the low-rank pair.
enum class StepRule { kDecay, kDelta, kPair };

template <StepRule kRule>
HWY_MAYBE_UNUSED static void StepToken(const RecurrentStepTask& task,
                                       int64_t t) {
  const DF d;
  constexpr bool kDelta = kRule == StepRule::kDelta;
  constexpr bool kPair = kRule == StepRule::kPair;
  const RecurrentInputs& in = *task.in;
  const int64_t d_key = in.keys.size[3], d_value = in.values.size[3];
  const DType dtype = in.values.dtype;
  const float* old = t == 0 ? task.old_state : task.state;
  StepRows rows;
  const bool one_block = d_key <= kStepKeys;
  const auto for_blocks = [&](const auto& f) HWY_ATTR {
    for (int64_t block = 0; block < d_key; block += kStepKeys) {
      if (!one_block) LoadStepBlock(task, t, block, rows);
      f(block, std::min(kStepKeys, d_key - block));
    }
  };
  if (one_block) LoadStepBlock(task, t, 0, rows);
  float dot = 0.0f, write_dot = 0.0f, beta = 0.0f;
  if (kDelta || kPair || in.bonus != nullptr) {
    for_blocks([&](int64_t block, int64_t width) HWY_ATTR {
      dot += QueryDotKey(task, rows, block, width);
      if (kPair) write_dot += RowDot(rows.query, rows.write, PadRow(width));
    });
  }
  if (kDelta) {
    beta = LoadNumber(in.betas.dtype,
                      in.betas.Row(task.batch, t, task.value_head));
  }
  HWY_ALIGN float values[kStepColumns];
  HWY_ALIGN float out[kStepColumns];
  HWY_ALIGN float prediction[kStepColumns];
  // A step meets each state once: while one head's is updated, the next one's
  // is prefetched.
  const int64_t next = in.queries.size[1] == 1 ? d_key * d_value : 0;
  for (int64_t column = 0; column < d_value; column += kStepColumns) {
    const int64_t columns = std::min(kStepColumns, d_value - column);
    const int64_t skip = column * static_cast<int64_t>(DTypeBytes(dtype));
    LoadRow(dtype, in.values.Row(task.batch, t, task.value_head) + skip,
            columns, values);
    std::fill(out, out + kStepColumns, 0.0f);
    std::fill(prediction, prediction + kStepColumns, 0.0f);
    const auto at = [&](int64_t block) HWY_ATTR {
      const int64_t first = block * d_value + column;
      return StepColumns{values, old + first, task.state + first,
                         out,    prediction,  d_value,
                         next};
    };
    if (kDelta) {
      for_blocks([&](int64_t block, int64_t width) HWY_ATTR {
        PassBlock<StepPass::kPredict>(rows, width, at(block), columns);
      });
      // u = beta (v - prediction) in the place of v; out += (q . k) u.
      const VF b = hn::Set(d, beta), qk = hn::Set(d, dot);
      for (int64_t c = 0; c < PadRow(columns); c += kLanes) {
        const VF u = hn::Mul(
            b, hn::Sub(hn::Load(d, values + c), hn::Load(d, prediction + c)));
        hn::Store(u, d, values + c);
        hn::Store(hn::MulAdd(qk, u, hn::Load(d, out + c)), d, out + c);
      }
      for_blocks([&](int64_t block, int64_t width) HWY_ATTR {
        PassBlock<StepPass::kWrite>(rows, width, at(block), columns);
      });
    } else if (kPair) {
      for_blocks([&](int64_t block, int64_t width) HWY_ATTR {
        PassBlock<StepPass::kReadPair>(rows, width, at(block), columns);
      });
      // out += (q . b) e + (q . k) v.
      const VF qb = hn::Set(d, write_dot), qk = hn::Set(d, dot);
      for (int64_t c = 0; c < PadRow(columns); c += kLanes) {
        VF sum =
            hn::MulAdd(qb, hn::Load(d, prediction + c), hn::Load(d, out + c));
        sum = hn::MulAdd(qk, hn::Load(d, values + c), sum);
        hn::Store(sum, d, out + c);
      }
      for_blocks([&](int64_t block, int64_t width) HWY_ATTR {
        PassBlock<StepPass::kWritePair>(rows, width, at(block), columns);
      });
    } else if (in.bonus != nullptr) {
      for_blocks([&](int64_t block, int64_t width) HWY_ATTR {
        PassBlock<StepPass::kExclusive>(rows, width, at(block), columns);
      });
      const VF factor = hn::Set(d, dot);
      for (int64_t c = 0; c < PadRow(columns); c += kLanes) {
        hn::Store(
            hn::MulAdd(factor, hn::Load(d, values + c), hn::Load(d, out + c)),
            d, out + c);
      }
    } else {
      for_blocks([&](int64_t block, int64_t width) HWY_ATTR {
        PassBlock<StepPass::kInclusive>(rows, width, at(block), columns);
      });
    }
    StoreRow(dtype, out, columns,
             task.out->Row(task.batch, t, task.value_head) + skip);
  }
}

template <StepRule kRule>
HWY_MAYBE_UNUSED static void StepHead(const RecurrentStepTask& task) {
  const RecurrentInputs& in = *task.in;
  int64_t t = 0;
  if (kRule == StepRule::kDecay && in.bonus == nullptr &&
      in.keys.size[3] <= kStepKeys) {
    for (; t + 2 <= task.tokens; t += 2) {
      PrefetchOutput(task, t + 4);
      PrefetchOutput(task, t + 5);
      StepTwoTokens(task, t);
    }
  }
  for (; t < task.tokens; ++t) {
    PrefetchOutput(task, t + 2);
    StepToken<kRule>(task, t);
  }
  const int64_t floats = in.keys.size[3] * in.values.size[3];
  if (task.tokens == 0 && task.state != nullptr &&
      task.state != task.old_state) {
    std::memcpy(task.state, task.old_state,
                static_cast<size_t>(floats) * sizeof(float));
  }
  for (t = task.tokens; t < in.queries.size[1]; ++t) {
    std::memset(
        task.out->Row(task.batch, t, task.value_head), 0,
        static_cast<size_t>(in.values.size[3]) * DTypeBytes(task.out->dtype));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // include guard
