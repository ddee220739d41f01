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

  // Sums relative to their own maxima: brought to the common one, they add up.
  void StateBefore(const Heads& heads, const RotaryTable&,
                   const SequenceCut& cut, MixerState& state) override {
    ops::AftSimpleOptions options;
    options.causal = true;
    const ops::AftState own = ops::AftSimple(heads.queries.slice(1, 0, 0),
                                             heads.keys, heads.values, options)
                                  .state;
    const auto earlier = cut.Earlier({own.m, own.a, own.b},
                                     {state["m"], state["a"], state["b"]});
    torch::Tensor m = earlier[0][0], a = earlier[0][1], b = earlier[0][2];
    for (size_t i = 1; i < earlier.size(); ++i) {
      const torch::Tensor highest = torch::maximum(m, earlier[i][0]);
      const torch::Tensor ours = (m - highest).exp();
      const torch::Tensor theirs = (earlier[i][0] - highest).exp();
      a = a * ours + earlier[i][1] * theirs;
      b = b * ours + earlier[i][2] * theirs;
      m = highest;
    }
    state["m"] = m;
    state["a"] = a;
    state["b"] = b;
  }

  torch::Tensor ContinueHeads(const Heads& heads, const RotaryTable&,
                              const NewTokens& taken,
                              MixerState& state) override {
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

std::vector<MixerRow> aft::Mixers() {
  return {{"aft-full", MakeAftFull}, {"aft-simple", MakeAftSimple}};
}

}  // namespace tarn::nn
