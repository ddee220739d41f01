// From logits to a token: top_k -> top_p -> min_p -> temperature -> draw, with
// llama.cpp's names and defaults. A pure function of (logits, options,
// position).
#pragma once

#include <cstdint>
#include <span>

#include "core/error.h"

namespace tarn {

struct SamplerOptions {
  double temperature = 0.8;  // <= 0: greedy, ties to the lowest id; <= 100
  int64_t top_k = 40;        // 0: off
  double top_p = 0.95;       // (0, 1], 1: off
  double min_p = 0.05;       // [0, 1], relative to the best; 0: off
  uint64_t seed = 0;
  uint64_t stream = 0;  // forks and batch rows draw from their own stream
};

/// Throws ArgumentError naming the option.
void CheckSampler(const SamplerOptions& options);

/// Draws the token at `position` (counter of the generator: the same arguments
/// give the same token). No stage leaves zero candidates. NaN or +inf among
/// the logits throws NumericError. O(vocab) time.
int32_t Sample(std::span<const float> logits, const SamplerOptions& options,
               uint64_t position);

}  // namespace tarn
