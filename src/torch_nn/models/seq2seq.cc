#include "torch_nn/models/seq2seq.h"

#include "torch_nn/state/lengths.h"

namespace tarn::nn {
namespace {

constexpr char kSource[] = "Seq2Seq";
constexpr char kTarget[] = "Seq2Seq: target";

}  // namespace

Seq2SeqImpl::Seq2SeqImpl(const ModelConfig& config)
    : ModelImpl(config),
      source_(*this, config_, "value_", /*shared=*/false),
      target_(*this, config_, "target_", /*shared=*/config_.tied_head) {
  if (config_.arch != Arch::kSeq2seq) {
    throw ArgumentError("Seq2Seq: arch", "seq2seq", Name(config_.arch));
  }
  encoder_ = register_module("encoder", Encoder(config_, /*causal=*/false));
  decoder_ = register_module("decoder", Decoder(config_));
  predictor_ = register_module("predictor", Predictor(config_));
}

std::vector<MixerState> Seq2SeqImpl::Memories(const torch::Tensor& tokens,
                                              const torch::Tensor& lengths) {
  const torch::Tensor x = source_(kSource, tokens);
  const torch::Tensor key_mask = PrefixMask(kSource, lengths, x);
  return decoder_->MemoryStates(encoder_(x, key_mask), key_mask, lengths);
}

torch::Tensor Seq2SeqImpl::Logits(const Batch& batch) {
  const std::vector<MixerState> memories =
      Memories(batch.tokens, batch.lengths);
  const torch::Tensor x = target_(kTarget, batch.target_in);
  if (x.size(0) != batch.tokens.size(0)) {
    throw ShapeError(StrCat(kTarget, ": tokens"),
                     StrCat("targets of ", batch.tokens.size(0), " sources"),
                     StrCat(x.size(0)));
  }
  const torch::Tensor key_mask = PrefixMask(kTarget, batch.target_lengths, x);
  return predictor_(decoder_(x, memories, key_mask), target_.weight());
}

StackState Seq2SeqImpl::Encode(const torch::Tensor& tokens,
                               const torch::Tensor& lengths) {
  return decoder_->InitialState(Memories(tokens, lengths));
}

StackState Seq2SeqImpl::InitialState(int64_t batch) const {
  const torch::Tensor nothing =
      torch::empty({batch, 0, config_.d_model}, parameters().front().options());
  return decoder_->InitialState(decoder_->MemoryStates(nothing, {}));
}

std::pair<torch::Tensor, StackState> Seq2SeqImpl::Prefill(
    const torch::Tensor& target, const StackState& state,
    const torch::Tensor& lengths) {
  CheckTokens(kTarget, target, config_.vocab_size);
  CheckStateBatch(kTarget, state, target);
  const torch::Tensor places = PlacesAfter(state.lengths(), target.size(1));
  auto [hidden, next] =
      decoder_->Prefill(target_(kTarget, target, places), state, lengths);
  return {predictor_(hidden, target_.weight()), std::move(next)};
}

}  // namespace tarn::nn
