// Beam search over states that are values: a hypothesis is a state, and where
// two hypotheses have one beginning, the state was copied.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "runtime/model/model.h"

namespace tarn {

struct BeamOptions {
  int64_t beam = 1;          // hypotheses kept, 1 (greedy) to 1024
  int64_t max_tokens = 256;  // of a hypothesis, the end token included; >= 0
  /// alpha >= 0 of score = log p / length^alpha (Wu et al. 2016, eq. (14),
  /// without its constants); length counts the end token. 0: log p itself.
  double length_penalty = 1.0;
  int32_t start = 0;       // token before the first
  int32_t end = 0;         // token that ends a hypothesis
  int64_t candidates = 0;  // ids below this may come; 0: vocab_size
};

struct Hypothesis {
  std::vector<int32_t> tokens;  // without start and end
  double log_probability = 0;   // natural, of the tokens and the end
  double score = 0;             // by which hypotheses are ordered
  bool finished = false;        // ended by the end token, not by max_tokens
};

/// Asked between steps; true ends the search with what there is.
using BeamStop = std::function<bool()>;

/// For every start state (which stays as it is; position 0 or later) the best
/// hypotheses, at most `beam`: finished ones first, then by score. In each step
/// the best beam - finished continuations survive; among equals that of the
/// better parent, then the lower id, so that beam 1 takes what the greedy
/// sampler takes. All hypotheses of all states go through one StepBatch a step,
/// and none of them depends on the others' company. Throws ArgumentError for
/// options out of range, NumericError when logits are not finite. Memory: two
/// states a hypothesis.
std::vector<std::vector<Hypothesis>> BeamSearch(const Model& model,
                                                std::span<const State> starts,
                                                const BeamOptions& options,
                                                const BeamStop& stop = {});

}  // namespace tarn
