#include "torch_nn/mixers/linear/linear.h"

#include "torch_nn/mixers/common/projected.h"
#include "torch_nn/mixers/linear/heads.h"
#include "torch_nn/mixers/linear/random_features.h"
#include "torch_ops/common/ops.h"
#include "torch_ops/layers/layers.h"

namespace tarn::nn {
namespace {

LinearAttentionOptions KernelOptions(const ModelConfig& config, bool causal) {
  LinearAttentionOptions options;
  options.causal = causal;
  options.feature_map = config.feature_map;
  options.denominator = config.denominator;
  options.eps = static_cast<float>(config.eps);
  return options;
}

// The name of the tensor that the denominator or the feature map needs beside S
// and z; null: none. See ops::LinearState.
const char* ExtraOf(const ModelConfig& config) {
  if (config.denominator == Denominator::kSigned) return "norm_sums";
  return config.stabilise ? "maxima" : nullptr;
}

// O(T) time, a state of constant size: S [B, H, C, V], z [B, H, C].
class Linear : public ProjectedMixer {
 public:
  Linear(const ModelConfig& layer, MixerPlace place)
      : ProjectedMixer(layer, place),
        features_(*this, "inner_attention", layer, place.index) {
    // The largest exponent of a feature so far, which only this side needs.
    if (layer.denominator != Denominator::kSigned && layer.stabilise) {
      const std::vector<int64_t>& z = state_form_->slots[1].spec.shape;
      state_form_->slots.push_back({{.name = "maxima", .shape = z}});
    }
    memory_form_ = state_form_;
  }

  void Redraw(int64_t step) override { features_.Redraw(step); }

 protected:
  torch::Tensor AttendPacked(const torch::Tensor& packed,
                             const RotaryTable& rotary,
                             const torch::Tensor& key_mask) override {
    const bool fused = IsElementwise(config_.feature_map) &&
                       config_.denominator != Denominator::kSigned;
    if (!fused || rotary.defined()) {
      return ProjectedMixer::AttendPacked(packed, rotary, key_mask);
    }
    return ops::LinearAttentionPacked(
        packed, {config_.n_heads, config_.n_heads, config_.d_key},
        KernelOptions(config_, place_.causal),
        key_mask.defined() ? ops::OptionalTensor(key_mask) : std::nullopt);
  }

  torch::Tensor AttendHeads(const Heads& heads, const RotaryTable& rotary,
                            const torch::Tensor& key_mask) override {
    LinearHeads in = In(heads, place_.causal);
    in.key_mask = key_mask;
    return AttendTurned(config_, in, rotary, nullptr);
  }

  torch::Tensor ContinueHeads(const Heads& heads, const RotaryTable& rotary,
                              const Taken& taken, MixerState& state) override {
    LinearHeads in = In(heads, /*causal=*/true);
    in.key_lengths = taken.lengths;
    ops::LinearState sums = Sums(state);
    torch::Tensor out = AttendTurned(config_, in, rotary, &sums);
    Store(sums, state);
    return out;
  }

  void FillHeads(const torch::Tensor& keys, const torch::Tensor& values,
                 const torch::Tensor& key_mask,
                 MixerState& state) const override {
    // There are no queries yet.
    LinearHeads in = In({keys.slice(1, 0, 0), keys, values}, /*causal=*/false);
    in.key_mask = key_mask;
    ops::LinearState sums;
    AttendLinearHeads(config_, in, &sums);
    Store(sums, state);
  }

  torch::Tensor ReadHeads(const torch::Tensor& queries,
                          const MixerState& memory) override {
    // No key is added to the memory.
    const auto nothing = [&](int64_t width) {
      return torch::empty({queries.size(0), 0, config_.n_heads, width},
                          queries.options());
    };
    const Heads none = {queries, nothing(config_.d_key),
                        nothing(config_.d_value)};
    ops::LinearState sums = Sums(memory);
    return AttendLinearHeads(config_, In(none, /*causal=*/false), &sums);
  }

 private:
  LinearHeads In(const Heads& heads, bool causal) const {
    LinearHeads in;
    in.queries = heads.queries;
    in.keys = heads.keys;
    in.values = heads.values;
    in.omega = features_.omega();
    in.causal = causal;
    return in;
  }

  ops::LinearState Sums(const MixerState& state) const {
    ops::LinearState sums = {state["S"], state["z"], {}};
    if (const char* extra = ExtraOf(config_)) sums.extra = state[extra];
    return sums;
  }

  void Store(const ops::LinearState& sums, MixerState& state) const {
    state["S"] = sums.S;
    state["z"] = sums.z;
    if (const char* extra = ExtraOf(config_)) state[extra] = sums.extra;
  }

  RandomFeatures features_;
};

}  // namespace

std::vector<MixerRow> LinearRows() {
  return {{"linear", [](const ModelConfig& layer,
                        MixerPlace place) -> std::shared_ptr<Mixer> {
             return std::make_shared<Linear>(layer, place);
           }}};
}

}  // namespace tarn::nn
