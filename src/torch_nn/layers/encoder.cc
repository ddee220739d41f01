#include "torch_nn/layers/encoder.h"

#include "torch_nn/layers/residual.h"

namespace tarn::nn {

EncoderLayerImpl::EncoderLayerImpl(const ModelConfig& config,
                                   MixerPlace place)
    : pre_norm_(config.norm == Norm::kPre), dropout_(config.dropout) {
  attention = register_module("attention", MakeMixer(config, place));
  feed_forward_ = MakeFeedForward(*this, config, place);
  norm1 = register_module("norm1", MakeNorm(config));
  if (feed_forward_ != nullptr) {
    norm2 = register_module("norm2", MakeNorm(config));
  }
}

torch::Tensor EncoderLayerImpl::Rest(const torch::Tensor& x,
                                     const Mixed& mixed,
                                     const RowPlaces& places) const {
  const double dropout = is_training() ? dropout_ : 0.0;
  if (feed_forward_ == nullptr) {
    const auto sum =
        AddResidual(Projected(mixed), x, mixed.bias,
                    pre_norm_ ? nullptr : norm1.get(), ops::DrawDropout(dropout));
    return pre_norm_ ? sum.s : sum.y;
  }
  return RestOfLayer(
      x, mixed,
      {pre_norm_ ? *norm2 : *norm1, pre_norm_ ? nullptr : norm2.get(),
       *feed_forward_, dropout, places});
}

torch::Tensor EncoderLayerImpl::forward(const torch::Tensor& x,
                                        const RotaryTable& rotary,
                                        const torch::Tensor& key_mask) {
  return Rest(x, Unfinished(attention->Unprojected(
                                x, rotary, key_mask,
                                pre_norm_ ? norm1.get() : nullptr),
                            *attention),
              {.key_mask = key_mask});
}

torch::Tensor EncoderLayerImpl::Piece(const torch::Tensor& x,
                                      const SequenceCut& cut,
                                      const RotaryTable& rotary) {
  return Rest(x, Unfinished(attention->UnprojectedPiece(
                                x, cut, rotary,
                                pre_norm_ ? norm1.get() : nullptr),
                            *attention),
              {.cut = &cut});
}

torch::Tensor EncoderLayerImpl::Prefill(const torch::Tensor& x,
                                        MixerState& state,
                                        const RotaryTable& rotary,
                                        const torch::Tensor& lengths) {
  auto [attended, next] = attention->Prefill(pre_norm_ ? norm1->forward(x) : x,
                                             state, rotary, lengths);
  const torch::Tensor added = next.lengths - state.lengths;
  state = std::move(next);
  return Rest(x, Finished(std::move(attended), *attention),
              {.state = &state, .added = added});
}

EncoderImpl::EncoderImpl(const ModelConfig& config, bool causal)
    : config_(config) {
  layers = register_module("layers", torch::nn::ModuleList());
  for (int64_t i = 0; i < config.n_layers; ++i) {
    layers->push_back(EncoderLayer(LayerView(config, i),
                                   MixerPlace{causal, /*cross=*/false, i}));
  }
  if (config.final_norm) norm = register_module("norm", MakeNorm(config));
}

torch::Tensor EncoderImpl::forward(const torch::Tensor& x,
                                   const torch::Tensor& key_mask) {
  const RotaryTable rotary = tables_->Rotary(config_, x.size(1), x);
  torch::Tensor hidden = x;
  for (const auto& layer : *layers) {
    hidden = layer->as<EncoderLayer>()->forward(hidden, rotary, key_mask);
  }
  return norm ? norm->forward(hidden) : hidden;
}

torch::Tensor EncoderImpl::Piece(const torch::Tensor& x,
                                 const SequenceCut& cut) {
  const RotaryTable rotary =
      tables_->Rotary(config_, cut.size(), x, cut.begin());
  torch::Tensor hidden = x;
  for (const auto& layer : *layers) {
    hidden = layer->as<EncoderLayer>()->Piece(hidden, cut, rotary);
  }
  return norm ? norm->forward(hidden) : hidden;
}

StackState EncoderImpl::InitialState(int64_t batch) const {
  StackState state;
  for (const auto& layer : *layers) {
    state.layers.push_back(
        layer->as<EncoderLayer>()->attention->InitialState(batch));
  }
  return state;
}

std::pair<torch::Tensor, StackState> EncoderImpl::Prefill(
    const torch::Tensor& x, const StackState& state,
    const torch::Tensor& lengths) {
  if (state.layers.size() != layers->size()) {
    throw ArgumentError("Encoder: state",
                        StrCat("a state of ", layers->size(), " layers"),
                        StrCat(state.layers.size()));
  }
  const RotaryTable rotary =
      tables_->RotaryAt(config_, PlacesAfter(state.lengths(), x.size(1)), x);
  StackState next = state;
  torch::Tensor hidden = x;
  for (size_t i = 0; i < layers->size(); ++i) {
    hidden = layers[i]->as<EncoderLayer>()->Prefill(hidden, next.layers[i],
                                                    rotary, lengths);
  }
  return {norm ? norm->forward(hidden) : hidden, std::move(next)};
}

}  // namespace tarn::nn
