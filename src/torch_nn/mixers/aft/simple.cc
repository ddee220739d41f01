#include "torch_nn/mixers/aft/aft.h"
#include "torch_nn/mixers/common/projected.h"
#include "torch_ops/aft/aft.h"

namespace tarn::nn {
namespace {

// The state is, per channel, the running maximum and the sums relative to it:
// m, a, b [B, H, V], of constant size.
class AftSimple : public ProjectedMixer {
 public:
  using ProjectedMixer::ProjectedMixer;

 protected:
  torch::Tensor AttendHeads(const Heads& heads, const RotaryTable& rotary,
                            const torch::Tensor& key_mask) override {
    const Heads turned = Turned(heads, rotary);
    ops::AftSimpleOptions options;
    options.causal = place_.causal;
    if (key_mask.defined()) options.key_mask = key_mask;
    return ops::AftSimple(turned.queries, turned.keys, turned.values, options)
        .out;
  }

  torch::Tensor ContinueHeads(const Heads& heads, const RotaryTable&,
                              const Taken& taken, MixerState& state) override {
    ops::AftSimpleOptions options;
    options.causal = true;
    options.key_lengths = taken.added.to(heads.keys.device());
    options.initial_state = ops::AftState{state["m"], state["a"], state["b"]};
    ops::AftSimpleResult result =
        ops::AftSimple(heads.queries, heads.keys, heads.values, options);
    state["m"] = result.state.m;
    state["a"] = result.state.a;
    state["b"] = result.state.b;
    return result.out;
  }
};

}  // namespace

std::shared_ptr<Mixer> MakeAftSimple(const ModelConfig& layer,
                                     MixerPlace place) {
  return std::make_shared<AftSimple>(layer, place);
}

std::vector<MixerRow> AftRows() {
  return {{"aft-full", MakeAftFull}, {"aft-simple", MakeAftSimple}};
}

}  // namespace tarn::nn
