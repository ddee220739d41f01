#include "config/feed_forward_form.h"

#include "config/fields.h"
#include "core/text.h"

namespace tarn {

std::vector<NamedShape> FeedForwardShapes(const ModelConfig& config) {
  const int64_t d_ff = config.d_ff, d_model = config.d_model;
  switch (config.feed_forward) {
    case FeedForwardKind::kMlp:
      return {{"linear1.weight", {d_ff, d_model}},
              {"linear1.bias", {d_ff}},
              {"linear2.weight", {d_model, d_ff}},
              {"linear2.bias", {d_model}}};
    case FeedForwardKind::kSwiglu:
      return {{"linear1.weight", {d_ff, d_model}},
              {"linear2.weight", {d_model, d_ff}},
              {"linear3.weight", {d_ff, d_model}}};
    case FeedForwardKind::kChannelMix:
      return {{"token_shift", {d_model}},
              {"linear1.weight", {d_ff, d_model}},
              {"linear2.weight", {d_model, d_ff}}};
  }
  return {};
}

StateSpec FeedForwardState(const ModelConfig& config) {
  if (config.feed_forward != FeedForwardKind::kChannelMix) return {};
  return {{.name = kChannelShift, .shape = {config.d_model}}};
}

StateSpec LayerState(const ModelConfig& view) {
  const MixerSpec& spec = Spec(view.attention);
  if (spec.state == nullptr) return {};
  StateSpec state = spec.state(view);
  for (StateTensor& tensor : FeedForwardState(view)) {
    state.push_back(std::move(tensor));
  }
  return state;
}

void CheckFeedForward(const ModelConfig& config) {
  if (config.feed_forward != FeedForwardKind::kChannelMix ||
      config.arch == Arch::kDecoder) {
    return;
  }
  RefuseKey("feed_forward",
            StrCat("mlp or swiglu for arch '", Name(config.arch),
                   "' (a channel mix reads the row before each, which is for a "
                   "stack that reads one way and carries a state)"),
            Name(config.feed_forward));
}

}  // namespace tarn
