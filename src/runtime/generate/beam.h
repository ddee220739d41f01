// Beam search over states that are values: each hypothesis has a state of its
// own, copied where two hypotheses have the same beginning.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/model/model.h"

namespace tarn {

struct BeamOptions {
  int64_t beam = 1;  // hypotheses kept, 1 (greedy) to 1024
  /// Per hypothesis, with the end token; >= 0. Of a model with learned
  /// positions a hypothesis ends unfinished where they end (Model::max_tokens).
  int64_t max_tokens = 256;
  /// alpha >= 0 of score = log p / length^alpha (Wu et al. 2016, eq. (14),
  /// without its constants); length counts the end token. 0: log p itself.
  double length_penalty = 1.0;
  int32_t start = 0;       // token before the first
  int32_t end = 0;         // token that ends a hypothesis
  int64_t candidates = 0;  // only ids below it are considered; 0: vocab_size
};

struct Hypothesis {
  std::vector<int32_t> tokens;  // without start and end
  double log_probability = 0;   // natural log, of the tokens and the end token
  double score = 0;             // hypotheses are ordered by it
  bool finished = false;        // ended by the end token, not by a limit
};

/// Returns, for every start state (which stays as it is; position 0 or later),
/// the best hypotheses, at most `beam`: finished ones first, then by score. In
/// each step the best `beam - finished` continuations survive; among equals
/// that of the better parent wins, then the lower id, so that beam 1 takes what
/// the greedy sampler takes. All hypotheses of all states go through one
/// StepBatch per step, and none of them depends on the others in it. Throws
/// ArgumentError for options out of range, NumericError when logits are not
/// finite. Memory: two states per hypothesis. `stop` is asked between steps;
/// true ends the search with what it has found so far.
std::vector<std::vector<Hypothesis>> BeamSearch(const Model& model,
                                                std::span<const State> starts,
                                                const BeamOptions& options,
                                                const StopCheck& stop = {});

}  // namespace tarn
