// DRY ("don't repeat yourself"): a penalty for tokens that would continue a
// repetition, which grows with its length.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/sampling/candidates.h"
#include "runtime/sampling/sampler_options.h"
#include "text/tokenizer.h"

namespace tarn {

/// Texts that no repetition reaches over, as tokens: a token that contains one,
/// or one that ends with its beginning, and the tokens of the rest. Immutable;
/// thread-safe.
class DryBreakers {
 public:
  /// At most as many tokens of a rest count.
  static constexpr size_t kMostRest = 20;

  DryBreakers() = default;  // none
  /// O(bytes of the tokenizer's table * texts).
  DryBreakers(std::span<const std::string> texts, const Tokenizer& tokenizer);

  /// Whether the token by itself contains one of them.
  bool IsBreaker(int32_t token) const;
  /// The number of tokens at the end that come after the last breaker; all of
  /// them where there is none.
  int64_t TokensAfterLast(std::span<const int32_t> tokens) const;

 private:
  struct Breaker {
    int32_t head;
    std::vector<int32_t> rest;
    bool operator==(const Breaker&) const = default;
    bool operator<(const Breaker& other) const {
      return std::tie(head, rest) < std::tie(other.head, other.rest);
    }
  };
  std::span<const Breaker> Of(int32_t head) const;

  std::vector<Breaker> breakers_;  // sorted, each once
};

/// Whether the options change a logit.
bool HasDry(const SamplerOptions& options);

/// For each earlier place among the last dry_penalty_last_n tokens where the n
/// tokens before it are those at the end, n counted up to the last breaker: a
/// penalty of dry_multiplier * dry_base^(n - dry_allowed_length) for the token
/// there, the longest n of it, unless n is below dry_allowed_length or the
/// token is a breaker. O(tokens that count), and O(vocab) for the first stage
/// that changes logits. Source: pull request 5677 of
/// oobabooga/text-generation-webui.
void ApplyDry(Candidates& candidates, const SamplerOptions& options,
              const DryBreakers& breakers, std::span<const int32_t> tokens);

}  // namespace tarn
