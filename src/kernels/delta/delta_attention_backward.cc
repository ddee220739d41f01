// Gradient of delta_attention: one pass in reverse (docs/kernels.md).
#include <algorithm>
#include <cstdint>

#include "kernels/delta/delta_attention.h"
#include "kernels/recurrence/checks.h"
#include "kernels/recurrence/gradient_dispatch.h"
#include "kernels/recurrence/gradient_layout.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/delta/delta_attention_backward.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/recurrence/chunked_gradient-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

static void DeltaGradientSequence(const RecurrentGradientTask& task) {
  ChunkedGradient<GatedCore<true>>(task).Run();
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(DeltaGradientSequence);

size_t DeltaAttentionGradientBytes(const RecurrentInputs& in, int width,
                                   bool has_checkpoints) {
  return RecurrentGradientBytes(in, width, has_checkpoints);
}

void DeltaAttentionBackward(const RecurrentOptions& options,
                            const RecurrentInputs& in,
                            const RecurrentGradients& gradients,
                            Executor& executor, void* workspace) {
  constexpr RecurrentOp kOp = {"delta_attention", true};
  CheckRecurrent(kOp, options, in, gradients.grad_out, "grad_out");
  CheckRecurrentGradients(kOp, in, gradients);
  RunRecurrentGradient(options, in, gradients, executor, workspace,
                       [](const RecurrentGradientTask& task) {
                         HWY_DYNAMIC_DISPATCH(DeltaGradientSequence)(task);
                       });
}

}  // namespace tarn
#endif  // HWY_ONCE
