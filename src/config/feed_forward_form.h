// The feed-forward part of a layer as data: its tensors and what it carries
// from token to token. Both are defined here, so that code that counts or
// carries them does not branch on the type.
//
//   mlp          W_2 act(W_1 x + b_1) + b_2
//   swiglu       W_2 (silu(W_1 x) * W_3 x) (Shazeer 2020, eq. (6))
//   channel-mix  W_2 relu(W_1 (x + token_shift * (x' - x)))^2, x' the row
//                before x in its sequence, zeros before the first (Peng et al.
//                2025, arXiv 2503.14456; RWKV-6's form also has a gate)
#pragma once

#include <vector>

#include "config/model_config.h"

namespace tarn {

/// Tensors under the prefix of a layer, in the order of the weight file. Of a
/// finished configuration, as are the others.
std::vector<NamedShape> FeedForwardShapes(const ModelConfig& config);

/// What the part carries: nothing, or one row of d_model.
StateSpec FeedForwardState(const ModelConfig& config);
/// The name of that row, which no mixer's tensor has.
inline constexpr const char* kChannelShift = "channel_shift";

/// The state of a whole layer: the tensors of its mixer, then those of its
/// feed-forward part. Empty where the mixer has no recurrent form.
StateSpec LayerState(const ModelConfig& view);

/// Throws ArgumentError naming feed_forward where the model around it cannot
/// have the part.
void CheckFeedForward(const ModelConfig& config);

}  // namespace tarn
