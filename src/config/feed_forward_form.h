// The feed-forward part of a layer as data, by its row of the registry
// (feed_forward_spec.h). Code that counts or stores its tensors reads it.
#pragma once

#include <cstdint>
#include <vector>

#include "config/feed_forward_spec.h"
#include "config/model_config.h"

namespace tarn {

/// Tensors under the prefix of a layer, in the order of the weight file. Of a
/// finished configuration as the layer sees it (LayerView), as are the others.
std::vector<NamedShape> FeedForwardShapes(const ModelConfig& view);
/// Whether the layer has such a part, and with it a norm.
bool HasFeedForward(const ModelConfig& view);
/// Trained numbers that the products of one token read.
int64_t FeedForwardNumbersUsed(const ModelConfig& view);

/// Whether the maps of a part have biases, where it has them or not by itself.
constexpr bool HasBiases(const ModelConfig& view, bool by_itself) {
  return view.feed_forward_bias == FeedForwardBias::kAuto
             ? by_itself
             : view.feed_forward_bias == FeedForwardBias::kAll;
}

/// What the part carries: nothing, or one row of d_model.
StateSpec FeedForwardState(const ModelConfig& view);
/// The name of that row, which no mixer's tensor has.
inline constexpr const char* kChannelShift = "channel_shift";

/// The state of a whole layer: the tensors of its mixer, then those of its
/// feed-forward part. Empty where the mixer has no recurrent form.
StateSpec LayerState(const ModelConfig& view);

/// Throws ArgumentError naming feed_forward where the model around it cannot
/// have the part of one of its layers.
void CheckFeedForward(const ModelConfig& config);

}  // namespace tarn
