// From logits to a token: logit_bias -> mask -> the stages that
// SamplerOptions::samplers lists -> draw, with llama.cpp's names and defaults.
// A pure function of (logits, options, tokens so far, mask, state, position).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/sampling/dry.h"
#include "runtime/sampling/sampler_options.h"
#include "text/tokenizer.h"

namespace tarn {

/// What changes from draw to draw besides the tokens themselves. A value.
struct SamplerState {
  double mu = 0;  // of Mirostat, in bits
  bool operator==(const SamplerState&) const = default;
};

struct SampleInput {
  std::span<const float> logits;  // [vocab]
  /// Of the sequence so far, prompt included, oldest first. Ids that are no row
  /// of the logits count for nothing.
  std::span<const int32_t> tokens = {};
  /// Bit id % 32 of word id / 32: whether a token may be drawn; empty: all may.
  std::span<const uint32_t> allowed = {};
  /// Counter of the generator.
  uint64_t position = 0;
};

struct TokenProbability {
  int32_t token;
  double probability;
};

/// Options made ready for a tokenizer. Immutable; thread-safe.
class Sampler {
 public:
  /// Without a tokenizer: DRY has no sequence breakers. Throws ArgumentError
  /// for options out of range.
  explicit Sampler(SamplerOptions options);
  /// Throws ArgumentError also for a logit_bias of an id that the tokenizer
  /// does not have. O(1), with DRY O(bytes of the tokenizer's table).
  Sampler(SamplerOptions options, const Tokenizer& tokenizer);

  const SamplerOptions& options() const { return options_; }
  /// The state before the first draw.
  SamplerState Start() const { return {2 * options_.mirostat_tau}; }

  /// Draws a token: the same arguments give the same one. No stage leaves zero
  /// candidates. Throws ShapeError for no logits and for a mask of fewer bits,
  /// NumericError for NaN or +inf among the logits and where bias and mask
  /// allow nothing, with the state unchanged. O(vocab + tokens that count).
  int32_t Draw(const SampleInput& input, SamplerState& state) const;

  /// All tokens that Draw with these arguments may give and their
  /// probabilities, the best first. Errors as Draw. O(vocab + n log n) for n of
  /// them.
  std::vector<TokenProbability> Distribution(const SampleInput& input,
                                             const SamplerState& state) const;

 private:
  SamplerOptions options_;
  DryBreakers breakers_;
};

/// How many of the latest tokens draws with these options look at; -1: all.
int64_t TokensThatCount(const SamplerOptions& options);

/// A draw without earlier tokens, for callers that have none: penalties and DRY
/// change nothing, and Mirostat begins. Throws as Sampler and Draw.
int32_t Sample(std::span<const float> logits, const SamplerOptions& options,
               uint64_t position);

}  // namespace tarn
