// Log-probabilities of tokens as the model gives them, before any option of
// sampling.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tarn {

struct TokenProb {
  int32_t token;
  float logprob;  // natural; -infinity for a logit of -infinity
};

struct TokenProbs {
  TokenProb token;
  std::vector<TokenProb> top;  // best first, ties to the lowest id
};

/// Log-softmax of logits [vocab]: that of `token`, and those of the `count`
/// likeliest (0 or more; fewer where fewer logits are finite). Throws
/// ArgumentError for a token outside the row or a negative count, ShapeError
/// for an empty row, NumericError for NaN and +inf and where no logit is
/// finite. O(vocab + count log count).
TokenProbs TokenProbsOf(std::span<const float> logits, int32_t token,
                        int64_t count);

}  // namespace tarn
