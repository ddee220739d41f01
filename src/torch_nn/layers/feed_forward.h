// The feed-forward part of a layer, by its configuration's feed_forward.
#pragma once

#include <memory>
#include <vector>

#include "config/model_config.h"
#include "torch_nn/mixers/mixer.h"
#include "torch_nn/torch.h"
#include "torch_ops/layers/layers.h"

namespace tarn::nn {

/// Where the rows of a call are in their sequences, for a part that reads the
/// row before each: from the first on, those that key_mask does not keep as
/// zeros; as a piece of a cut sequence; or after what a state has taken in.
struct RowPlaces {
  torch::Tensor key_mask = {};       // [B, T] bool; undefined: all are kept
  const SequenceCut* cut = nullptr;  // null: no piece
  MixerState* state = nullptr;       // its channel_shift is replaced
  torch::Tensor added = {};          // [B] int64: rows that count, with state
};

/// The part of a layer between the mixer and the layer's end, applied row by
/// row, or to each row and the one before it. It is no module itself, since the
/// keys of a model file have no prefix for it: its linear maps belong to the
/// layer.
class FeedForward {
 public:
  virtual ~FeedForward() = default;
  /// x [B, T, d_model] -> the same shape, without OutputBias, which the
  /// residual adds (ops::ResidualNorm).
  virtual torch::Tensor operator()(const torch::Tensor& x,
                                   const ops::Dropout& dropout,
                                   const RowPlaces& places) const = 0;
  /// [d_model]; undefined for a kind without an output bias.
  virtual torch::Tensor OutputBias() const { return {}; }
  /// Sets the fields that ops::LayerRest needs of it; returns false for a kind
  /// that the operator does not know.
  virtual bool Describe(ops::LayerRestArguments&) const { return false; }
};

/// Makes the part of one layer, whose tensors belong to `owner`; layer: the
/// configuration as the layer sees it.
using FeedForwardFactory = std::unique_ptr<FeedForward> (*)(
    torch::nn::Module& owner, const ModelConfig& layer,
    const MixerPlace& place);

struct FeedForwardRow {
  const char* name;  // of a FeedForwardSpec
  FeedForwardFactory make;
};

/// Adds the module of a part that RegisterFeedForward has made known. Throws
/// ArgumentError for a name that no part has or whose module is registered, and
/// for a null factory. Thread-safe; call it before a model needs the part.
void RegisterTorchFeedForward(const FeedForwardRow& row);

/// The rows that every build has: feed_forward_parts.cc.
std::vector<FeedForwardRow> BuiltinFeedForwardRows();

/// The part of layer.feed_forward, registered in `owner`; null for a layer
/// without one. Each map is initialised as in torch::nn::Linear.
///   mlp     linear2(drop(act(linear1(x)))): linear1 [F, D], linear2 [D, F],
///           with biases; act relu or a gelu (config.activation)
///   swiglu  linear2(drop(silu(linear1(x)) * linear3(x))): linear1 and linear3
///           [F, D], linear2 [D, F], without biases (Shazeer 2020, eq. (6))
///   channel-mix  linear2(drop(relu(linear1(x + token_shift * (x' - x)))^2)),
///           x' the row before x: linear1 [F, D], linear2 [D, F], without
///           biases, and token_shift [D], which begins as 1 - (c / D)^((1 -
///           layer / layers)^4) for channel c, as in RWKV-7's own code
///   gated-channel-mix  the same times sigma(gate(x + gate_shift * (x' - x))):
///           gate [D, D], and gate_shift [D], which begins as token_shift
///   geglu   linear2(drop(gelu(linear1(x)) * linear3(x))), the exact gelu, as
///           swiglu otherwise
///   geglu-tanh   the same with gelu's form that has a tanh
///   relu2   linear2(drop(relu(linear1(x))^2)), without biases
///   moe     a mixture of experts (feed_forward/moe_form.h): router, experts,
///   shared
/// place: of the layer's mixer. Throws ArgumentError for a part with a state in
/// a stack that sees later tokens.
std::unique_ptr<FeedForward> MakeFeedForward(torch::nn::Module& owner,
                                             const ModelConfig& layer,
                                             const MixerPlace& place = {});

}  // namespace tarn::nn
