// Gradient of decay_attention: one pass in reverse (docs/kernels.md).
#include <algorithm>
#include <cstdint>

#include "kernels/decay/decay_attention.h"
#include "kernels/recurrence/checks.h"
#include "kernels/recurrence/gradient_dispatch.h"
#include "kernels/recurrence/gradient_layout.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/decay/decay_attention_backward.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/recurrence/chunked_gradient-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tarn {
namespace HWY_NAMESPACE {

static void DecayGradientSequence(const RecurrentGradientTask& task) {
  ChunkedGradient<GatedCore<false>>(task).Run();
}

}  // namespace HWY_NAMESPACE
}  // namespace tarn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tarn {
HWY_EXPORT(DecayGradientSequence);

size_t DecayAttentionGradientBytes(const RecurrentInputs& in, int width,
                                   bool has_checkpoints) {
  return RecurrentGradientBytes(in, width, has_checkpoints);
}

void DecayAttentionBackward(const RecurrentOptions& options,
                            const RecurrentInputs& in,
                            const RecurrentGradients& gradients,
                            Executor& executor, void* workspace) {
  constexpr RecurrentOp kOp = {"decay_attention", false};
  CheckRecurrent(kOp, options, in, gradients.grad_out, "grad_out");
  CheckRecurrentGradients(kOp, in, gradients);
  RunRecurrentGradient(options, in, gradients, executor, workspace,
                       [](const RecurrentGradientTask& task) {
                         HWY_DYNAMIC_DISPATCH(DecayGradientSequence)(task);
                       });
}

}  // namespace tarn
#endif  // HWY_ONCE
