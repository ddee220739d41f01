#include "torch_nn/layers/decoder.h"

#include "config/feed_forward_form.h"
#include "core/error.h"
#include "torch_nn/layers/layer_rest.h"

namespace tarn::nn {

DecoderLayerImpl::DecoderLayerImpl(const ModelConfig& config, int64_t index)
    : dropout_(config.dropout) {
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
  sums_ = std::make_unique<ResidualSums>(*this, view, 3);
}

torch::Tensor DecoderLayerImpl::Rest(const torch::Tensor& x, const Mixed& mixed,
                                     const MixerState& memory) {
  const double dropout = is_training() ? dropout_ : 0.0;
  const auto read = [&](const torch::Tensor& rows) {
    return Unfinished(cross_attention->ReadUnprojected(rows, memory),
                      *cross_attention);
  };
  if (sums_->plain()) {
    // In the pre form `y` is what the next part reads and `s` the residual
    // stream; in the post form they are one.
    const bool pre = sums_->pre();
    const auto first =
        AddResidual(Projected(mixed), x, mixed.bias, sums_->norm(pre ? 1 : 0),
                    ops::DrawDropout(dropout));
    return RestOfLayer(
        pre ? first.s : first.y, read(first.y),
        {*sums_->norm(pre ? 2 : 1), pre ? nullptr : sums_->norm(2),
         *feed_forward_, dropout});
  }
  const torch::Tensor own =
      sums_->Add(0, x, Projected(mixed), mixed.bias, dropout);
  const Mixed seen = read(sums_->Input(1, own));
  const torch::Tensor both =
      sums_->Add(1, own, Projected(seen), seen.bias, dropout);
  const torch::Tensor hidden =
      (*feed_forward_)(sums_->Input(2, both), ops::DrawDropout(dropout), {});
  return sums_->Add(2, both, hidden, feed_forward_->OutputBias(), dropout);
}

torch::Tensor DecoderLayerImpl::forward(const torch::Tensor& x,
                                        const MixerState& memory,
                                        const MixerContext& context,
                                        const torch::Tensor& key_mask) {
  return Rest(x,
              Unfinished(self_attention->Unprojected(x, context, key_mask,
                                                     sums_->before(0)),
                         *self_attention),
              memory);
}

torch::Tensor DecoderLayerImpl::Prefill(const torch::Tensor& x,
                                        MixerState& state,
                                        const MixerState& memory,
                                        const MixerContext& context,
                                        const torch::Tensor& lengths) {
  auto [attended, next] =
      self_attention->Prefill(sums_->Input(0, x), state, context, lengths);
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

void DecoderImpl::CheckMemories(const std::vector<MixerState>& memories) const {
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
  PassedRows passed;
  const MixerContext context(tables_->Rotary(config_, x.size(1), x), &passed);
  torch::Tensor hidden = x;
  for (size_t i = 0; i < layers->size(); ++i) {
    hidden = layers[i]->as<DecoderLayer>()->forward(hidden, memories[i],
                                                    context, key_mask);
  }
  return norm ? norm->forward(hidden) : hidden;
}

StackState DecoderImpl::InitialState(std::vector<MixerState> memories) const {
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
  PassedRows passed;
  const MixerContext context(
      tables_->RotaryAt(config_, PlacesAfter(state.lengths(), x.size(1)), x),
      &passed);
  StackState next = state;
  torch::Tensor hidden = x;
  for (size_t i = 0; i < layers->size(); ++i) {
    hidden = layers[i]->as<DecoderLayer>()->Prefill(
        hidden, next.layers[i], state.memories[i], context, lengths);
  }
  return {norm ? norm->forward(hidden) : hidden, std::move(next)};
}

}  // namespace tarn::nn
