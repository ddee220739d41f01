// The encoder-decoder model: two token embeddings over one vocabulary, an
// encoder that sees the whole source, a causal decoder with cross attention to
// it, head.
#pragma once

#include <utility>

#include "config/model_config.h"
#include "torch_nn/layers/decoder.h"
#include "torch_nn/layers/embedding.h"
#include "torch_nn/layers/encoder.h"
#include "torch_nn/models/model.h"
#include "torch_nn/torch.h"

namespace tarn::nn {

class Seq2SeqImpl : public ModelImpl {
 public:
  /// config: of arch seq2seq. Initialised as LanguageModel; a tied head reads
  /// the target embedding.
  explicit Seq2SeqImpl(const ModelConfig& config);

  /// Logits [B, U, vocab_size] of the batch's target_in given its tokens.
  torch::Tensor Logits(const Batch& batch) override;

  /// The decoder's state before its first token: the source has been read once.
  /// tokens [B, T] int64, lengths [B] int64 (undefined: T). Throws
  /// ArgumentError with the reason for a kind of self-attention that has no
  /// recurrent form.
  StackState Encode(const torch::Tensor& tokens,
                    const torch::Tensor& lengths = {});
  /// The state for sources without tokens: it has the form of every state.
  StackState InitialState(int64_t batch) const;
  StackState EmptyState() const override {
    const torch::NoGradGuard no_grad;
    return InitialState(0);
  }
  /// Logits [B, U, vocab_size] of target tokens that follow a state, of which
  /// the first lengths[b] count (undefined: all); U = 1 is a step. Equals
  /// Logits on everything taken in so far.
  std::pair<torch::Tensor, StackState> Prefill(
      const torch::Tensor& target, const StackState& state,
      const torch::Tensor& lengths = {});

 private:
  std::vector<MixerState> Memories(const torch::Tensor& tokens,
                                   const torch::Tensor& lengths);

  TokenEmbedding source_;
  TokenEmbedding target_;
  Encoder encoder_{nullptr};
  Decoder decoder_{nullptr};
  Predictor predictor_{nullptr};
};
TORCH_MODULE(Seq2Seq);

}  // namespace tarn::nn
