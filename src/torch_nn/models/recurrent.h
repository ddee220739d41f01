// The models from before the transformer that carry a state from token to
// token: the vanilla RNN (Elman 1990) and the LSTM (Hochreiter and Schmidhuber
// 1997), built from torch's own layers.
#pragma once

#include <optional>
#include <utility>

#include "config/model_config.h"
#include "torch_nn/layers/embedding.h"
#include "torch_nn/models/model.h"
#include "torch_nn/torch.h"

namespace tarn::nn {

/// Hidden values after the tokens seen so far, [n_layers, B, d_model]; `c` of
/// an LSTM only. A value: no call changes it.
struct RecurrentState {
  torch::Tensor h, c;
};

/// rnn:  h_t = tanh(W_ih x_t + b_ih + W_hh h_{t-1} + b_hh)
/// lstm: torch.nn.LSTM's four gates; bidirectional: d_model / 2 each way
/// Task lm: logits of every token. Task classify: of the mean over tokens. Task
/// ctc (lstm): the first layer reads the frames, logits of every frame.
class RecurrentModelImpl : public ModelImpl {
 public:
  /// config: of arch rnn or lstm. Layers U(+-1/sqrt(hidden)), the rest as in
  /// LanguageModel. config.dropout acts between layers and before the head.
  explicit RecurrentModelImpl(const ModelConfig& config);

  torch::Tensor Logits(const Batch& batch) override;

  /// Task lm, token by token: logits [B, T, vocab_size] of tokens [B, T] that
  /// follow a state. Throws ArgumentError for a classifier.
  RecurrentState InitialState(int64_t batch) const;
  std::pair<torch::Tensor, RecurrentState> Prefill(const torch::Tensor& tokens,
                                                   const RecurrentState& state);

 private:
  // The table a tied head reads; undefined in ctc.
  torch::Tensor Table() const;
  // x [B, T, D], or frames -> [B, T, D].
  torch::Tensor Run(const torch::Tensor& x, const torch::Tensor& lengths);

  std::optional<TokenEmbedding> embedding_;  // not in ctc
  torch::nn::RNN rnn_{nullptr};              // one of
  torch::nn::LSTM lstm_{nullptr};            // the two
  Predictor predictor_{nullptr};
};
TORCH_MODULE(RecurrentModel);

}  // namespace tarn::nn
