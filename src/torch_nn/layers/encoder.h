// The encoder layer (a mixer and a feed-forward network with residuals and
// norms) and the stack of layers with its optional final norm.
#pragma once

#include <memory>
#include <utility>

#include "config/model_config.h"
#include "torch_nn/layers/feed_forward.h"
#include "torch_nn/layers/layer_rest.h"
#include "torch_nn/layers/residual.h"
#include "torch_nn/mixers/registry.h"
#include "torch_nn/state/stack_state.h"
#include "torch_nn/torch.h"
#include "torch_ops/layers/layers.h"

namespace tarn::nn {

/// One layer, by config.norm:
///   post: x1 = norm1(x + drop(Att(x)));  y = norm2(x1 + drop(FFN(x1)))
///   pre:  x1 = x + drop(Att(norm1(x)));  y = x1 + drop(FFN(norm2(x1)))
/// and the others of ResidualSums. Att is the mixer of config.attention, the
/// norms are of config.norm_kind, FFN is the part of config.feed_forward;
/// without one the layer is x1.
class EncoderLayerImpl : public torch::nn::Module {
 public:
  /// config: the finished config as the layer sees it (LayerView); throws
  /// ArgumentError otherwise.
  explicit EncoderLayerImpl(const ModelConfig& config, MixerPlace place = {});

  /// x [B, T, d_model] -> the same shape. `context`: the table
  /// MakeRotaryTable(config, T, x), and rows that layers pass on. `key_mask`
  /// [B, T] bool, undefined: all. Dropout draws from torch's default generator,
  /// in training mode only.
  torch::Tensor forward(const torch::Tensor& x,
                        const MixerContext& context = {},
                        const torch::Tensor& key_mask = {});
  /// The rows of a piece of a sequence that is cut over ranks, [B, size,
  /// d_model]; see Mixer::UnprojectedPiece.
  torch::Tensor Piece(const torch::Tensor& x, const SequenceCut& cut,
                      const MixerContext& context = {});
  /// Takes in the tokens after `state` and replaces it; see Mixer::Prefill.
  torch::Tensor Prefill(const torch::Tensor& x, MixerState& state,
                        const MixerContext& context = {},
                        const torch::Tensor& lengths = {});

  std::shared_ptr<Mixer> attention;

  /// Of the mixer and of the feed-forward part.
  const ResidualSums& sums() const { return *sums_; }

 private:
  torch::Tensor Rest(const torch::Tensor& x, const Mixed& mixed,
                     const RowPlaces& places) const;
  double dropout_;
  bool parallel_;
  std::unique_ptr<FeedForward> feed_forward_;  // null: none
  std::unique_ptr<ResidualSums> sums_;         // of one part without it
};
TORCH_MODULE(EncoderLayer);

/// config.n_layers layers by its pattern, then the norm `norm` if
/// config.final_norm.
class EncoderImpl : public torch::nn::Module {
 public:
  /// causal: a decoder-only stack, which has a recurrent form.
  explicit EncoderImpl(const ModelConfig& config, bool causal = true);
  /// x [B, T, d_model] -> the same shape. All layers share one rotary table,
  /// kept between calls. `key_mask` [B, T] bool, undefined: all; tokens that
  /// are not kept have no influence on those that are.
  torch::Tensor forward(const torch::Tensor& x,
                        const torch::Tensor& key_mask = {});

  /// The same of a piece of a sequence that is cut over ranks, without padding.
  torch::Tensor Piece(const torch::Tensor& x, const SequenceCut& cut);

  /// The recurrent form; errors as in Mixer::InitialState and Prefill.
  StackState InitialState(int64_t batch) const;
  std::pair<torch::Tensor, StackState> Prefill(
      const torch::Tensor& x, const StackState& state,
      const torch::Tensor& lengths = {});

  torch::nn::ModuleList layers{nullptr};
  std::shared_ptr<NormLayer> norm;  // null without a final norm

 private:
  ModelConfig config_;
  std::shared_ptr<PositionTables> tables_ = std::make_shared<PositionTables>();
};
TORCH_MODULE(Encoder);

}  // namespace tarn::nn
