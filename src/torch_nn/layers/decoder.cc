#include "torch_nn/layers/decoder.h"

#include "config/feed_forward_form.h"
#include "core/error.h"
#include "torch_nn/layers/residual.h"

namespace tarn::nn {

DecoderLayerImpl::DecoderLayerImpl(const ModelConfig& config, int64_t index)
    : pre_norm_(config.norm == Norm::kPre), dropout_(config.dropout) {
  const ModelConfig view = LayerView(config, index);
  if (!FeedForwardState(view).empty() || !HasFeedForward(view)) {
    throw ArgumentError("DecoderLayer: feed_forward",
                        "a part without a state, as mlp or swiglu",
                        Name(view.feed_forward));
  }
  // The encoder's layers come first, then two attentions a layer.
  const int64_t first = config.n_layers + 2 * index;
  self_attention = register_module(
      "self_attention",
      MakeMixer(view, MixerPlace{/*causal=*/true, /*cross=*/false, first}));
  cross_attention = register_module(
      "cross_attention",
      MakeMixer(CrossView(config),
                MixerPlace{/*causal=*/false, /*cross=*/true, first + 1}));
  feed_forward_ = MakeFeedForward(*this, view);
  norm1 = register_module("norm1", MakeNorm(config));
  norm2 = register_module("norm2", MakeNorm(config));
  norm3 = register_module("norm3", MakeNorm(config));
}

torch::Tensor DecoderLayerImpl::Rest(const torch::Tensor& x,
                                     const Mixed& mixed,
                                     const MixerState& memory) {
  // In the pre form `y` is what the next part reads and `s` the residual
  // stream; in the post form they are one.
  const double dropout = is_training() ? dropout_ : 0.0;
  const auto first =
      AddResidual(Projected(mixed), x, mixed.bias, (pre_norm_ ? norm2 : norm1).get(),
                  ops::DrawDropout(dropout));
  const Mixed read = Unfinished(
      cross_attention->ReadUnprojected(first.y, memory), *cross_attention);
  return RestOfLayer(pre_norm_ ? first.s : first.y, read,
                     {pre_norm_ ? *norm3 : *norm2,
                      pre_norm_ ? nullptr : norm3.get(), *feed_forward_,
                      dropout});
}

torch::Tensor DecoderLayerImpl::forward(const torch::Tensor& x,
                                        const MixerState& memory,
                                        const RotaryTable& rotary,
                                        const torch::Tensor& key_mask) {
  return Rest(x,
              Unfinished(self_attention->Unprojected(
                             x, rotary, key_mask,
                             pre_norm_ ? norm1.get() : nullptr),
                         *self_attention),
              memory);
}

torch::Tensor DecoderLayerImpl::Prefill(const torch::Tensor& x,
                                        MixerState& state,
                                        const MixerState& memory,
                                        const RotaryTable& rotary,
                                        const torch::Tensor& lengths) {
  auto [attended, next] = self_attention->Prefill(
      pre_norm_ ? norm1->forward(x) : x, state, rotary, lengths);
  state = std::move(next);
  return Rest(x, Finished(std::move(attended), *self_attention), memory);
}

DecoderImpl::DecoderImpl(const ModelConfig& config) : config_(config) {
  layers = register_module("layers", torch::nn::ModuleList());
  for (int64_t i = 0; i < config.n_decoder_layers; ++i) {
    layers->push_back(DecoderLayer(config, i));
  }
  if (config.final_norm) norm = register_module("norm", MakeNorm(config));
}

void DecoderImpl::CheckMemories(
    const std::vector<MixerState>& memories) const {
  if (memories.size() == layers->size()) return;
  throw ArgumentError("Decoder: memories",
                      StrCat("those of ", layers->size(), " layers"),
                      StrCat(memories.size()));
}

std::vector<MixerState> DecoderImpl::MemoryStates(
    const torch::Tensor& memory, const torch::Tensor& key_mask,
    const torch::Tensor& lengths) const {
  std::vector<MixerState> memories;
  for (const auto& layer : *layers) {
    memories.push_back(layer->as<DecoderLayer>()->cross_attention->MemoryState(
        memory, key_mask, lengths));
  }
  return memories;
}

torch::Tensor DecoderImpl::forward(const torch::Tensor& x,
                                   const std::vector<MixerState>& memories,
                                   const torch::Tensor& key_mask) {
  CheckMemories(memories);
  const RotaryTable rotary = tables_->Rotary(config_, x.size(1), x);
  torch::Tensor hidden = x;
  for (size_t i = 0; i < layers->size(); ++i) {
    hidden = layers[i]->as<DecoderLayer>()->forward(hidden, memories[i], rotary,
                                                    key_mask);
  }
  return norm ? norm->forward(hidden) : hidden;
}

StackState DecoderImpl::InitialState(
    std::vector<MixerState> memories) const {
  CheckMemories(memories);
  StackState state;
  for (size_t i = 0; i < layers->size(); ++i) {
    state.layers.push_back(
        layers->at<DecoderLayerImpl>(i).self_attention->InitialState(
            memories[i].batch()));
  }
  state.memories = std::move(memories);
  return state;
}

std::pair<torch::Tensor, StackState> DecoderImpl::Prefill(
    const torch::Tensor& x, const StackState& state,
    const torch::Tensor& lengths) {
  CheckMemories(state.memories);
  CheckMemories(state.layers);
  const RotaryTable rotary =
      tables_->RotaryAt(config_, PlacesAfter(state.lengths(), x.size(1)), x);
  StackState next = state;
  torch::Tensor hidden = x;
  for (size_t i = 0; i < layers->size(); ++i) {
    hidden = layers[i]->as<DecoderLayer>()->Prefill(
        hidden, next.layers[i], state.memories[i], rotary, lengths);
  }
  return {norm ? norm->forward(hidden) : hidden, std::move(next)};
}

}  // namespace tarn::nn
