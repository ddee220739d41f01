// Two tokens of a state that only decays (kInclusive of step_columns-inl.h): it
// is read and written once for both, with the operations of two steps, so that
// the bits are theirs, too.

#if defined(TARN_KERNELS_RECURRENCE_STEP_TWO_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef TARN_KERNELS_RECURRENCE_STEP_TWO_INL_H_
#undef TARN_KERNELS_RECURRENCE_STEP_TWO_INL_H_
#else
#define TARN_KERNELS_RECURRENCE_STEP_TWO_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/recurrence/step.h"
#include "kernels/recurrence/step_columns-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Vectors of columns in a pass: 24 of 32 registers hold values and sums, or 12
// of 16.
constexpr int kTwoVectors = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64 ? 4 : 2;

// Of each token.
struct TwoTokens {
  StepRows rows[2];
  HWY_ALIGN float values[2][kStepColumns];
  HWY_ALIGN float out[2][kStepColumns];
};

template <int kVectors>
HWY_INLINE void PassTwoColumns(TwoTokens& two, int64_t width, const float* old,
                               float* state, int64_t ld, int64_t c) {
  const DF d;
  VF v[2][kVectors], even[2][kVectors], odd[2][kVectors];
  HWY_UNROLL(2)
  for (int t = 0; t < 2; ++t) {
    HWY_UNROLL(4)
    for (int i = 0; i < kVectors; ++i) {
      v[t][i] = hn::LoadU(d, two.values[t] + c + i * kLanes);
      even[t][i] = hn::Zero(d);
      odd[t][i] = hn::Zero(d);
    }
  }
  const auto update = [&](int64_t k, VF(&into)[2][kVectors]) HWY_ATTR {
    HWY_UNROLL(4)
    for (int i = 0; i < kVectors; ++i) {
      const int64_t at = k * ld + c + i * kLanes;
      VF s = hn::LoadU(d, old + at);
      HWY_UNROLL(2)
      for (int t = 0; t < 2; ++t) {
        const StepRows& rows = two.rows[t];
        s = hn::MulAdd(hn::Set(d, rows.key[k]), v[t][i],
                       hn::Mul(hn::Set(d, rows.decay[k]), s));
        into[t][i] = hn::MulAdd(hn::Set(d, rows.query[k]), s, into[t][i]);
      }
      hn::StoreU(s, d, state + at);
    }
  };
  int64_t k = 0;
  for (; k + 2 <= width; k += 2) {
    update(k, even);
    update(k + 1, odd);
  }
  if (k < width) update(k, even);
  for (int t = 0; t < 2; ++t) {
    for (int i = 0; i < kVectors; ++i) {
      hn::StoreU(hn::Add(even[t][i], odd[t][i]), d,
                 two.out[t] + c + i * kLanes);
    }
  }
}

// Tokens t and t + 1 of a head with at most kStepKeys keys and no bonus.
HWY_MAYBE_UNUSED static void StepTwoTokens(const RecurrentStepTask& task,
                                           int64_t t) {
  const RecurrentInputs& in = *task.in;
  const int64_t d_key = in.keys.size[3], d_value = in.values.size[3];
  const DType dtype = in.values.dtype;
  TwoTokens two;
  for (int64_t i = 0; i < 2; ++i) LoadStepBlock(task, t + i, 0, two.rows[i]);
  for (int64_t column = 0; column < d_value; column += kStepColumns) {
    const int64_t columns = std::min(kStepColumns, d_value - column);
    const int64_t skip = column * static_cast<int64_t>(DTypeBytes(dtype));
    for (int64_t i = 0; i < 2; ++i) {
      LoadRow(dtype, in.values.Row(task.batch, t + i, task.value_head) + skip,
              columns, two.values[i]);
    }
    const float* old = (t == 0 ? task.old_state : task.state) + column;
    float* state = task.state + column;
    int64_t c = 0;
    for (; c + kTwoVectors * kLanes <= columns; c += kTwoVectors * kLanes) {
      PassTwoColumns<kTwoVectors>(two, d_key, old, state, d_value, c);
    }
    for (; c + kLanes <= columns; c += kLanes) {
      PassTwoColumns<1>(two, d_key, old, state, d_value, c);
    }
    for (int64_t i = 0; i < 2; ++i) {
      std::fill(two.out[i] + c, two.out[i] + columns, 0.0f);
      const StepColumns at = {two.values[i],
                              i == 0 ? old : state,
                              state,
                              two.out[i],
                              nullptr,
                              d_value,
                              0};
      PassTail<StepPass::kInclusive>(two.rows[i], d_key, at, c, columns);
      StoreRow(dtype, two.out[i], columns,
               task.out->Row(task.batch, t + i, task.value_head) + skip);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#endif  // TARN_KERNELS_RECURRENCE_STEP_TWO_INL_H_
