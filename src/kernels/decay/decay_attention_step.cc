// Recurrent form of decay_attention: update, then read (or, with a bonus, read,
// then update), in one pass over the state.
#include <cstdint>

#include "kernels/decay/decay_attention.h"
#include "kernels/recurrence/checks.h"
#include "kernels/recurrence/step.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/decay/decay_attention_step.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/recurrence/step-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

static void DecayStepHead(const RecurrentStepTask& task) {
  StepHead<StepRule::kDecay>(task);
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(DecayStepHead);

void DecayAttentionStep(const RecurrentOptions& options,
                        const RecurrentInputs& in, const RecurrentState& state,
                        const TensorView& out, Executor& executor) {
  constexpr RecurrentOp kOp = {"decay_attention", false};
  CheckRecurrent(kOp, options, in, out);
  CheckRecurrentStep(kOp, in, state);
  RunRecurrentStep(options, in, state, out, executor,
                   [](const RecurrentStepTask& task) {
                     HWY_DYNAMIC_DISPATCH(DecayStepHead)(task);
                   });
}

}  // namespace tarn
#endif  // HWY_ONCE
