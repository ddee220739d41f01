// Recurrent form of delta_attention: one pass over the state predicts the value
// and reads the output, a second one writes,
//   e = W^T k;  u = beta (v - e);  o = scale * (W^T q + (q . k) u).
#include <cstdint>

#include "kernels/delta/delta_attention.h"
#include "kernels/recurrence/checks.h"
#include "kernels/recurrence/step.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/delta/delta_attention_step.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/recurrence/step-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

static void DeltaStepHead(const RecurrentStepTask& task) {
  StepHead<StepRule::kDelta>(task);
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(DeltaStepHead);

void DeltaAttentionStep(const RecurrentOptions& options,
                        const RecurrentInputs& in, const RecurrentState& state,
                        const TensorView& out, Executor& executor) {
  constexpr RecurrentOp kOp = {"delta_attention", true};
  CheckRecurrent(kOp, options, in, out);
  CheckRecurrentStep(kOp, in, state);
  RunRecurrentStep(options, in, state, out, executor,
                   [](const RecurrentStepTask& task) {
                     HWY_DYNAMIC_DISPATCH(DeltaStepHead)(task);
                   });
}

}  // namespace tarn
#endif  // HWY_ONCE
