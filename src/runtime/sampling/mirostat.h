// Mirostat (Basu et al. 2021, "Mirostat: a neural text decoding algorithm that
// directly controls perplexity"): candidates are cut so that the surprise of
// drawn tokens stays near a target. mu, the bound of the surprise in bits, goes
// from draw to draw.
#pragma once

#include "runtime/sampling/candidates.h"
#include "runtime/sampling/sampler_options.h"

namespace tarn {

/// Cuts the candidates. Version 1 estimates the exponent of Zipf's law from the
/// 100 best and keeps the k best of its eq. (30); version 2 keeps those of
/// surprise mu or less, the best at least. O(candidates).
void KeepMirostat(Candidates& candidates, const SamplerOptions& options,
                  double mu);

/// mu after a token of this probability among the candidates kept was drawn.
double NextMu(const SamplerOptions& options, double mu, double probability);

}  // namespace tarn
