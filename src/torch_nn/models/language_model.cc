#include "torch_nn/models/language_model.h"

#include "torch_nn/state/lengths.h"

namespace tarn::nn {
namespace {

constexpr char kLanguageModel[] = "LanguageModel";

}  // namespace

LanguageModelImpl::LanguageModelImpl(const ModelConfig& config)
    : ModelImpl(config),
      embedding_(*this, config_, "value_", /*shared=*/config_.tied_head) {
  if (config_.arch != Arch::kDecoder) {
    throw ArgumentError("LanguageModel: arch", "decoder", Name(config_.arch));
  }
  encoder_ = Encoder(config_, /*causal=*/true);
  register_module("layers", encoder_->layers);
  if (encoder_->norm) register_module("norm", encoder_->norm);
  predictor_ = register_module("predictor", Predictor(config_));
}

torch::Tensor LanguageModelImpl::forward(const torch::Tensor& tokens) {
  return predictor_(encoder_(embedding_(kLanguageModel, tokens)),
                    embedding_.weight());
}

torch::Tensor LanguageModelImpl::Logits(const Batch& batch) {
  if (batch.cut != nullptr) {
    const torch::Tensor x =
        embedding_(kLanguageModel, batch.tokens, {}, batch.cut->begin());
    return predictor_(encoder_->Piece(x, *batch.cut), embedding_.weight());
  }
  const torch::Tensor x = embedding_(kLanguageModel, batch.tokens);
  const torch::Tensor key_mask = PrefixMask(kLanguageModel, batch.lengths, x);
  return predictor_(encoder_(x, key_mask), embedding_.weight());
}

StackState LanguageModelImpl::InitialState(int64_t batch) const {
  return encoder_->InitialState(batch);
}

std::pair<torch::Tensor, StackState> LanguageModelImpl::Prefill(
    const torch::Tensor& tokens, const StackState& state,
    const torch::Tensor& lengths) {
  CheckTokens(kLanguageModel, tokens, config_.vocab_size);
  CheckStateBatch(kLanguageModel, state, tokens);
  const torch::Tensor places = PlacesAfter(state.lengths(), tokens.size(1));
  auto [hidden, next] = encoder_->Prefill(
      embedding_(kLanguageModel, tokens, places), state, lengths);
  return {predictor_(hidden, embedding_.weight()), std::move(next)};
}

}  // namespace tarn::nn
