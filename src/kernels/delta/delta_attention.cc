// Forward call of delta_attention: chunks of 16 tokens, one triangular solve in
// registers per chunk and panel of columns (docs/kernels.md). With X the strict
// scores of keys with keys and Pt_i = F_i k_i:
//   (I + X Diag(beta)) R = V - Pt S;  U = Diag(beta) R
// and then decay_attention's chunk with U in the place of V.
#include "kernels/delta/delta_attention.h"

#include <algorithm>
#include <cstdint>

#include "kernels/recurrence/checks.h"
#include "kernels/recurrence/dispatch.h"
#include "kernels/recurrence/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/delta/delta_attention.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/recurrence/forward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

static void DeltaForwardSequence(const RecurrentTask& task) {
  RecurrentForwardSequence<true>(task);
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(DeltaForwardSequence);

void CheckDeltaAttention(const RecurrentOptions& options,
                         const RecurrentInputs& in,
                         const RecurrentOutputs& outputs) {
  CheckRecurrent({"delta_attention", true}, options, in, outputs.out);
}

size_t DeltaAttentionWorkspaceBytes(const RecurrentInputs& in, int width) {
  return RecurrentForwardBytes(in, width);
}

void DeltaAttentionForward(const RecurrentOptions& options,
                           const RecurrentInputs& in,
                           const RecurrentOutputs& outputs, Executor& executor,
                           void* workspace) {
  CheckDeltaAttention(options, in, outputs);
  RunRecurrentForward(options, in, outputs, executor, workspace,
                      [](const RecurrentTask& task) {
                        HWY_DYNAMIC_DISPATCH(DeltaForwardSequence)(task);
                      });
}

}  // namespace tarn
#endif  // HWY_ONCE
