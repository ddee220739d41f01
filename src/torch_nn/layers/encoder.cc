#include "torch_nn/layers/encoder.h"

namespace tarn::nn {

EncoderLayerImpl::EncoderLayerImpl(const ModelConfig& config, MixerPlace place)
    : dropout_(config.dropout), parallel_(config.parallel_residual) {
  attention = register_module("attention", MakeMixer(config, place));
  feed_forward_ = MakeFeedForward(*this, config, place);
  sums_ = std::make_unique<ResidualSums>(*this, config,
                                         feed_forward_ == nullptr ? 1 : 2);
}

torch::Tensor EncoderLayerImpl::Rest(const torch::Tensor& x, const Mixed& mixed,
                                     const RowPlaces& places) const {
  const double dropout = is_training() ? dropout_ : 0.0;
  if (sums_->plain() && feed_forward_ != nullptr) {
    const bool pre = sums_->pre();
    return RestOfLayer(
        x, mixed,
        {*sums_->norm(pre ? 1 : 0), pre ? nullptr : sums_->norm(1),
         *feed_forward_, dropout, places});
  }
  const torch::Tensor mixed_in =
      sums_->Add(0, x, Projected(mixed), mixed.bias, dropout);
  if (feed_forward_ == nullptr) return mixed_in;
  const torch::Tensor hidden =
      (*feed_forward_)(sums_->Input(1, parallel_ ? x : mixed_in),
                       ops::DrawDropout(dropout), places);
  return sums_->Add(1, mixed_in, hidden, feed_forward_->OutputBias(), dropout);
}

torch::Tensor EncoderLayerImpl::forward(const torch::Tensor& x,
                                        const MixerContext& context,
                                        const torch::Tensor& key_mask) {
  return Rest(
      x,
      Unfinished(attention->Unprojected(x, context, key_mask, sums_->before(0)),
                 *attention),
      {.key_mask = key_mask});
}

torch::Tensor EncoderLayerImpl::Piece(const torch::Tensor& x,
                                      const SequenceCut& cut,
                                      const MixerContext& context) {
  return Rest(
      x,
      Unfinished(attention->UnprojectedPiece(x, cut, context, sums_->before(0)),
                 *attention),
      {.cut = &cut});
}

torch::Tensor EncoderLayerImpl::Prefill(const torch::Tensor& x,
                                        MixerState& state,
                                        const MixerContext& context,
                                        const torch::Tensor& lengths) {
  auto [attended, next] =
      attention->Prefill(sums_->Input(0, x), state, context, lengths);
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
  PassedRows passed;
  const MixerContext context(tables_->Rotary(config_, x.size(1), x), &passed);
  torch::Tensor hidden = x;
  for (const auto& layer : *layers) {
    hidden = layer->as<EncoderLayer>()->forward(hidden, context, key_mask);
  }
  return norm ? norm->forward(hidden) : hidden;
}

torch::Tensor EncoderImpl::Piece(const torch::Tensor& x,
                                 const SequenceCut& cut) {
  PassedRows passed;
  const MixerContext context(
      tables_->Rotary(config_, cut.size(), x, cut.begin()), &passed);
  torch::Tensor hidden = x;
  for (const auto& layer : *layers) {
    hidden = layer->as<EncoderLayer>()->Piece(hidden, cut, context);
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
  PassedRows passed;
  const MixerContext context(
      tables_->RotaryAt(config_, PlacesAfter(state.lengths(), x.size(1)), x),
      &passed);
  StackState next = state;
  torch::Tensor hidden = x;
  for (size_t i = 0; i < layers->size(); ++i) {
    hidden = layers[i]->as<EncoderLayer>()->Prefill(hidden, next.layers[i],
                                                    context, lengths);
  }
  return {norm ? norm->forward(hidden) : hidden, std::move(next)};
}

}  // namespace tarn::nn
