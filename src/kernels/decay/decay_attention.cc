// Forward call of decay_attention: chunks of 16 tokens (docs/kernels.md).
#include "kernels/decay/decay_attention.h"

#include <algorithm>
#include <cstdint>

#include "kernels/recurrence/checks.h"
#include "kernels/recurrence/dispatch.h"
#include "kernels/recurrence/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/decay/decay_attention.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/recurrence/forward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

static void DecayForwardSequence(const RecurrentTask& task) {
  RecurrentForwardSequence<false>(task);
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(DecayForwardSequence);

static constexpr RecurrentOp kDecayOp = {"decay_attention", false};

void CheckDecayAttention(const RecurrentOptions& options,
                         const RecurrentInputs& in,
                         const RecurrentOutputs& outputs) {
  CheckRecurrent(kDecayOp, options, in, outputs.out);
}

size_t DecayAttentionWorkspaceBytes(const RecurrentInputs& in, int width) {
  return RecurrentForwardBytes(in, width);
}

void DecayAttentionForward(const RecurrentOptions& options,
                           const RecurrentInputs& in,
                           const RecurrentOutputs& outputs, Executor& executor,
                           void* workspace) {
  CheckDecayAttention(options, in, outputs);
  RunRecurrentForward(options, in, outputs, executor, workspace,
                      [](const RecurrentTask& task) {
                        HWY_DYNAMIC_DISPATCH(DecayForwardSequence)(task);
                      });
}

}  // namespace tarn
#endif  // HWY_ONCE
