// Benchmark cases of decay_attention: forward, gradient and step (or prefill).
// The parameters are in kernels/recurrence/recurrent_bench.h.
#include "kernels/decay/decay_attention.h"
#include "kernels/recurrence/recurrent_bench.h"

namespace tarn::bench {
namespace {

struct DecayOp {
  static constexpr bool kDelta = false;
  static constexpr auto ForwardBytes = DecayAttentionWorkspaceBytes;
  static constexpr auto GradientBytes = DecayAttentionGradientBytes;
  static constexpr auto Forward = DecayAttentionForward;
  static constexpr auto Backward = DecayAttentionBackward;
  static constexpr auto Step = DecayAttentionStep;
};

}  // namespace

void RegisterDecayAttention(Registry& registry) {
  registry.push_back({"decay_attention_forward",
                      MakeRecurrentCase<RecurrentForwardCase<DecayOp>>});
  registry.push_back({"decay_attention_gradient",
                      MakeRecurrentCase<RecurrentGradientCase<DecayOp>>});
  registry.push_back(
      {"decay_attention_step", MakeRecurrentCase<RecurrentStepCase<DecayOp>>});
}

}  // namespace tarn::bench
