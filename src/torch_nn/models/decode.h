// Decoding with a sequence-to-sequence model: greedy and beam search over
// states that are values. The rules are those of the runtime's search.
#pragma once

#include <cstdint>
#include <vector>

#include "torch_nn/models/seq2seq.h"
#include "torch_nn/torch.h"

namespace tarn::nn {

struct DecodeOptions {
  int64_t beam = 1;  // hypotheses kept for each source, >= 1
  /// Tokens of a hypothesis, the end token included; of a model with learned
  /// positions at most max_positions, its table's rows.
  int64_t max_len = 256;
  /// alpha >= 0 of score = log p / length^alpha (Wu et al. 2016, eq. (14),
  /// without its constants); length counts the end token. 0: log p itself.
  double length_penalty = 1.0;
  int64_t start = 0;  // token before the first
  int64_t end = 0;    // token that ends a hypothesis
};

struct Hypothesis {
  std::vector<int64_t> tokens;  // without start and end
  double log_probability = 0;   // natural, of the tokens and the end
  double score = 0;             // by which hypotheses are ordered
  bool finished = false;        // ended by the end token, not by a limit
};

/// Takes the likeliest token each time, the lower id among equals. tokens
/// [B, T] int64, lengths [B] int64 (undefined: T) as in Seq2Seq::Encode; one
/// hypothesis a source. Runs in the mode the model is in: call eval() first.
/// Throws what Encode throws, ArgumentError for options, NumericError when
/// logits are not finite.
std::vector<Hypothesis> GreedyDecode(Seq2SeqImpl& model,
                                     const torch::Tensor& tokens,
                                     const torch::Tensor& lengths = {},
                                     const DecodeOptions& options = {});

/// For each source at most `beam` hypotheses: finished ones first, then by
/// score. In each step the best beam - finished continuations survive; among
/// equals that of the better parent, then the lower id, so that beam 1 is
/// GreedyDecode. All hypotheses of all sources take one step together.
std::vector<std::vector<Hypothesis>> BeamSearch(
    Seq2SeqImpl& model, const torch::Tensor& tokens,
    const torch::Tensor& lengths = {}, const DecodeOptions& options = {});

}  // namespace tarn::nn
