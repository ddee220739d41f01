// Recurrent form of dplr_attention: one pass over the state reads what the pair
// takes and the output, a second one writes,
//   e = S^T c;  o = scale * (S^T (gamma q) + (q . b) e + (q . k) v).
#include <cstdint>

#include "kernels/dplr/dplr_attention.h"
#include "kernels/recurrence/checks.h"
#include "kernels/recurrence/step.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/dplr/dplr_attention_step.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/recurrence/step-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

static void DplrStepHead(const RecurrentStepTask& task) {
  StepHead<StepRule::kPair>(task);
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(DplrStepHead);

void DplrAttentionStep(const RecurrentOptions& options,
                       const RecurrentInputs& in, const RecurrentState& state,
                       const TensorView& out, Executor& executor) {
  constexpr RecurrentOp kOp = {"dplr_attention", false, true};
  CheckRecurrent(kOp, options, in, out);
  CheckRecurrentStep(kOp, in, state);
  RunRecurrentStep(options, in, state, out, executor,
                   [](const RecurrentStepTask& task) {
                     HWY_DYNAMIC_DISPATCH(DplrStepHead)(task);
                   });
}

}  // namespace tarn
#endif  // HWY_ONCE
