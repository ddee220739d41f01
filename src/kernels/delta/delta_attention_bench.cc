// Benchmark cases of delta_attention: forward, gradient and step (or prefill).
// The parameters are in kernels/recurrence/recurrent_bench.h.
#include "kernels/delta/delta_attention.h"
#include "kernels/recurrence/recurrent_bench.h"

namespace tarn::bench {
namespace {

struct DeltaOp {
  static constexpr bool kDelta = true;
  static constexpr auto ForwardBytes = DeltaAttentionWorkspaceBytes;
  static constexpr auto GradientBytes = DeltaAttentionGradientBytes;
  static constexpr auto Forward = DeltaAttentionForward;
  static constexpr auto Backward = DeltaAttentionBackward;
  static constexpr auto Step = DeltaAttentionStep;
};

}  // namespace

void RegisterDeltaAttention(Registry& registry) {
  registry.push_back({"delta_attention_forward",
                      MakeRecurrentCase<RecurrentForwardCase<DeltaOp>>});
  registry.push_back({"delta_attention_gradient",
                      MakeRecurrentCase<RecurrentGradientCase<DeltaOp>>});
  registry.push_back(
      {"delta_attention_step", MakeRecurrentCase<RecurrentStepCase<DeltaOp>>});
}

}  // namespace tarn::bench
