// The decoder layer (causal self-attention, cross attention to a memory,
// feed-forward network) and the stack of layers with its optional final norm.
#pragma once

#include <memory>
#include <utility>
#include <vector>

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
///   post: x1 = norm1(x + drop(Self(x)));  x2 = norm2(x1 + drop(Cross(x1, m)));
///         y = norm3(x2 + drop(FFN(x2)))
///   pre:  x1 = x + drop(Self(norm1(x)));  x2 = x1 + drop(Cross(norm2(x1), m));
///         y = x2 + drop(FFN(norm3(x2)))
/// and the others of ResidualSums. The memory m is used as given. Norms and FFN
/// are those of the encoder layer.
class DecoderLayerImpl : public torch::nn::Module {
 public:
  /// config: the model's finished config (FinishConfig); the layer takes its
  /// view of it. index: the layer's place in its stack.
  explicit DecoderLayerImpl(const ModelConfig& config, int64_t index = 0);

  /// x [B, T, d_model] and the state of a memory of B sequences (made by
  /// cross_attention->MemoryState) -> [B, T, d_model]. key_mask [B, T] bool
  /// (undefined: all) serves kinds whose outputs depend on later tokens; the
  /// rest are strictly causal.
  torch::Tensor forward(const torch::Tensor& x, const MixerState& memory,
                        const MixerContext& context = {},
                        const torch::Tensor& key_mask = {});
  /// Takes in the tokens after `state` and replaces it; see Mixer::Prefill.
  torch::Tensor Prefill(const torch::Tensor& x, MixerState& state,
                        const MixerState& memory,
                        const MixerContext& context = {},
                        const torch::Tensor& lengths = {});

  std::shared_ptr<Mixer> self_attention, cross_attention;

 private:
  torch::Tensor Rest(const torch::Tensor& x, const Mixed& mixed,
                     const MixerState& memory);
  double dropout_;
  std::unique_ptr<FeedForward> feed_forward_;
  std::unique_ptr<ResidualSums> sums_;  // of both attentions and the part
};
TORCH_MODULE(DecoderLayer);

/// config.n_decoder_layers layers by its pattern, then the norm `norm` if
/// config.final_norm.
class DecoderImpl : public torch::nn::Module {
 public:
  explicit DecoderImpl(const ModelConfig& config);

  /// What each layer's cross attention reads: memory [B, S, d_model] under
  /// key_mask [B, S] bool (undefined: all). It is made once for an input.
  /// lengths [B]: as in Mixer::MemoryState.
  std::vector<MixerState> MemoryStates(const torch::Tensor& memory,
                                       const torch::Tensor& key_mask = {},
                                       const torch::Tensor& lengths = {}) const;
  /// x [B, T, d_model] -> the same shape.
  torch::Tensor forward(const torch::Tensor& x,
                        const std::vector<MixerState>& memories,
                        const torch::Tensor& key_mask = {});

  /// The recurrent form; errors as in Mixer::InitialState and Prefill.
  StackState InitialState(std::vector<MixerState> memories) const;
  std::pair<torch::Tensor, StackState> Prefill(
      const torch::Tensor& x, const StackState& state,
      const torch::Tensor& lengths = {});

  torch::nn::ModuleList layers{nullptr};
  std::shared_ptr<NormLayer> norm;  // null without a final norm

 private:
  void CheckMemories(const std::vector<MixerState>& memories) const;

  ModelConfig config_;
  std::shared_ptr<PositionTables> tables_ = std::make_shared<PositionTables>();
};
TORCH_MODULE(Decoder);

}  // namespace tarn::nn
