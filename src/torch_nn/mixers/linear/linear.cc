#include "torch_nn/mixers/linear/linear.h"

#include "torch_nn/mixers/common/projected.h"
#include "torch_nn/mixers/linear/heads.h"
#include "torch_nn/mixers/linear/random_features.h"
#include "torch_ops/common/ops.h"
#include "torch_ops/layers/layers.h"

namespace tarn::nn {
namespace {

LinearAttentionOptions KernelOptions(const LinearKeys& keys, bool causal) {
  LinearAttentionOptions options;
  options.causal = causal;
  options.feature_map = keys.feature_map;
  options.denominator = keys.denominator;
  options.eps = static_cast<float>(keys.eps);
  return options;
}

// The name of the tensor that the denominator or the feature map needs besides
// S and z; null: none. See ops::LinearState.
const char* ExtraOf(const LinearKeys& keys) {
  if (keys.denominator == Denominator::kSigned) return "norm_sums";
  return keys.stabilise ? "maxima" : nullptr;
}

// O(T) time, a state of constant size: S [B, H, C, V], z [B, H, C].
class Linear : public ProjectedMixer {
 public:
  Linear(const ModelConfig& layer, MixerPlace place)
      : ProjectedMixer(layer, place),
        keys_(layer),
        features_(*this, "inner_attention", layer, place.draw()) {
    // The largest exponent of a feature so far, which only this side needs.
    if (keys_.denominator != Denominator::kSigned && keys_.stabilise) {
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
    const bool fused = IsElementwise(keys_.feature_map) &&
                       keys_.denominator != Denominator::kSigned;
    if (!fused || rotary.defined()) {
      return ProjectedMixer::AttendPacked(packed, rotary, key_mask);
    }
    return ops::LinearAttentionPacked(
        packed, {config_.n_heads, config_.n_heads, config_.d_key},
        KernelOptions(keys_, place_.causal),
        key_mask.defined() ? ops::OptionalTensor(key_mask) : std::nullopt);
  }

  torch::Tensor AttendHeads(const Heads& heads, const RotaryTable& rotary,
                            const torch::Tensor& key_mask) override {
    LinearHeads in = In(heads, place_.causal);
    in.key_mask = key_mask;
    return AttendTurned(keys_, in, rotary, nullptr);
  }

  torch::Tensor ContinueHeads(const Heads& heads, const RotaryTable& rotary,
                              const NewTokens& taken,
                              MixerState& state) override {
    LinearHeads in = In(heads, /*causal=*/true);
    in.key_lengths = taken.lengths;
    ops::LinearState sums = Sums(state);
    torch::Tensor out = AttendTurned(keys_, in, rotary, &sums);
    Store(sums, state);
    return out;
  }

  // Sums add up, whatever the order of tokens; relative to their own maxima
  // they are first brought to common ones.
  void StateBefore(const Heads& heads, const RotaryTable& rotary,
                   const SequenceCut& cut, MixerState& state) override {
    ops::LinearState own;
    if (rotary.defined() && config_.rotary_place == RotaryPlace::kAfter) {
      AttendTurned(keys_, In(heads, /*causal=*/true), rotary, &own);
    } else {
      const Heads turned = Turned(heads, rotary);
      AttendLinearHeads(
          keys_,
          In({turned.queries.slice(1, 0, 0), turned.keys, turned.values},
             /*causal=*/false),
          &own);
    }
    std::vector<torch::Tensor> parts = {own.S, own.z};
    const char* extra = ExtraOf(keys_);
    if (extra != nullptr) parts.push_back(own.extra);
    // The layer's state may hold more after the tensors of the mixer.
    const auto initial = state.tensors().begin();
    const auto count = static_cast<std::ptrdiff_t>(parts.size());
    const auto earlier = cut.Earlier(parts, {initial, initial + count});
    ops::LinearState sums = {earlier[0][0], earlier[0][1], {}};
    if (extra != nullptr) sums.extra = earlier[0][2];
    for (size_t i = 1; i < earlier.size(); ++i) {
      sums = Joined(sums, earlier[i]);
    }
    Store(sums, state);
  }

  void FillHeads(const torch::Tensor& keys, const torch::Tensor& values,
                 const torch::Tensor& key_mask,
                 MixerState& state) const override {
    // There are no queries yet.
    LinearHeads in = In({keys.slice(1, 0, 0), keys, values}, /*causal=*/false);
    in.key_mask = key_mask;
    ops::LinearState sums;
    AttendLinearHeads(keys_, in, &sums);
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
    return AttendLinearHeads(keys_, In(none, /*causal=*/false), &sums);
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

  // The state of two pieces. S [B, H, C, V], z [B, H, C]; extra: sums [B, H],
  // or maxima [B, H, C], the exponents that S and z are relative to.
  ops::LinearState Joined(const ops::LinearState& a,
                          const std::vector<torch::Tensor>& b) const {
    if (!keys_.stabilise || keys_.denominator == Denominator::kSigned) {
      ops::LinearState sums = {a.S + b[0], a.z + b[1], {}};
      if (b.size() > 2) sums.extra = a.extra + b[2];
      return sums;
    }
    const torch::Tensor highest = torch::maximum(a.extra, b[2]);
    const torch::Tensor from_a = (a.extra - highest).exp();
    const torch::Tensor from_b = (b[2] - highest).exp();
    return {a.S * from_a.unsqueeze(-1) + b[0] * from_b.unsqueeze(-1),
            a.z * from_a + b[1] * from_b, highest};
  }

  ops::LinearState Sums(const MixerState& state) const {
    ops::LinearState sums = {state["S"], state["z"], {}};
    if (const char* extra = ExtraOf(keys_)) sums.extra = state[extra];
    return sums;
  }

  void Store(const ops::LinearState& sums, MixerState& state) const {
    state["S"] = sums.S;
    state["z"] = sums.z;
    if (const char* extra = ExtraOf(keys_)) state[extra] = sums.extra;
  }

  const LinearKeys keys_;
  RandomFeatures features_;
};

}  // namespace

std::vector<MixerRow> linear::Mixers() {
  return {{"linear",
           [](const ModelConfig& layer,
              MixerPlace place) -> std::shared_ptr<Mixer> {
             return std::make_shared<Linear>(layer, place);
           }}};
}

}  // namespace tarn::nn
