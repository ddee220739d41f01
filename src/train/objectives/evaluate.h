// Loss on held-out text, and text written by a model in training.
#pragma once

#include <cstdint>
#include <string>

#include "data/text/corpus.h"
#include "torch_nn/models/model.h"
#include "train/distributed/sequence.h"

namespace tarn::train {

/// Sums over predicted tokens; loss in nats.
struct HeldOutLoss {
  double nats = 0;
  int64_t tokens = 0;
  int64_t bytes = 0;  // of text that the tokens stand for
  double nats_per_token() const;
  double bits_per_byte() const;
};

/// Rows of one forward pass: windows with one more token than they predict, all
/// of the same length or shorter, filled up to seq_len.
/// inputs, targets: [rows, seq_len] int64; targets are kIgnored where a window
/// has ended.
struct Rows {
  torch::Tensor inputs, targets;
  int64_t target_bytes = 0;
};
inline constexpr int64_t kIgnored = -100;  // torch's own default
Rows MakeRows(const std::vector<Window>& windows, int64_t seq_len);
/// Leaves of the rows what is here of a sequence that is cut over ranks.
void TakePiece(const nn::SequenceCut& cut, Rows& rows);

/// model.Logits of a batch on any device: on the model's device, and in float32
/// where autocast made them narrower, since a loss sums over all of them.
torch::Tensor LogitsOf(nn::ModelImpl& model, const nn::Batch& batch);
/// The same for full rows of tokens [B, T]: [B, T, outputs].
torch::Tensor LogitsOf(nn::ModelImpl& model, const torch::Tensor& inputs);
/// The same for the piece of rows that are cut over ranks; a cut without ranks
/// leaves them whole.
torch::Tensor LogitsOf(nn::ModelImpl& model, const torch::Tensor& inputs,
                       const nn::SequenceCut& cut);

/// Evaluates every held-out window once, in eval mode, without gradients; the
/// mode is restored. Sums in double, in window order. sequence: the ranks that
/// share the tokens of every window, all of which call this; null: none do.
HeldOutLoss Evaluate(nn::ModelImpl& model, const Corpus& corpus,
                     int64_t seq_len, const RankedSequence* sequence = nullptr);

/// Continues the start of the held-out text by `tokens` tokens, drawn with the
/// sampler's defaults and `seed`. Sees at most seq_len tokens at a time, as in
/// training. Leaves torch's generator alone.
std::string SampleText(nn::ModelImpl& model, const Corpus& corpus,
                       int64_t seq_len, int64_t tokens, uint64_t seed);

}  // namespace tarn::train
