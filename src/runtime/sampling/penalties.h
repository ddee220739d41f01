// Penalties for tokens of the text so far: repeat_penalty, presence_penalty and
// frequency_penalty.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/sampling/candidates.h"
#include "runtime/sampling/sampler_options.h"

namespace tarn {

/// The last `count` tokens; -1: all.
std::span<const int32_t> LastTokens(std::span<const int32_t> tokens,
                                    int64_t count);

/// Whether the options change a logit.
bool HasPenalties(const SamplerOptions& options);

/// Of a token that occurs n > 0 times among the last repeat_last_n ones:
/// logit / repeat_penalty where positive, else logit * repeat_penalty, minus
/// n * frequency_penalty + presence_penalty. O(tokens that count), and O(vocab)
/// for the first stage that changes logits.
/// Source: Keskar et al. 2019, section 4.1, with the product for negative
/// logits, where a quotient would make tokens likelier.
void ApplyPenalties(Candidates& candidates, const SamplerOptions& options,
                    std::span<const int32_t> tokens);

}  // namespace tarn
