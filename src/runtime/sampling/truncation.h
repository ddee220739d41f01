// The stages that drop candidates. Each leaves the best at least, and min_keep
// of them where there are as many; none changes a logit. O(candidates), plus
// O(kept * log candidates) where it says so.
#pragma once

#include "runtime/sampling/candidates.h"
#include "runtime/sampling/sampler_options.h"

namespace tarn {

/// Keeps logits within top_n_sigma standard deviations of the largest; the
/// deviation is that of all candidates.
/// Source: Tang et al. 2024, "Top-n sigma: not all logits are you need".
void TopNSigma(Candidates& candidates, const SamplerOptions& options);

/// Keeps the top_k best.
void TopK(Candidates& candidates, const SamplerOptions& options);

/// Keeps the candidates whose surprise is nearest to the entropy, the fewest
/// whose probabilities add up to more than typical_p. Kept ones are popped from
/// a heap.
/// Source: Meister et al. 2022, "Locally typical sampling".
void TypicalP(Candidates& candidates, const SamplerOptions& options);

/// Keeps, best first, the fewest whose probabilities add up to top_p. Kept ones
/// are popped from a heap.
/// Source: Holtzman et al. 2020, "The curious case of neural text
/// degeneration".
void TopP(Candidates& candidates, const SamplerOptions& options);

/// Drops those less likely than min_p times the best.
void MinP(Candidates& candidates, const SamplerOptions& options);

/// Exclude top choices: of those of probability xtc_threshold or more only the
/// least likely stays, if there are two. uniform: of this draw, in [0, 1); the
/// stage acts where it is at most xtc_probability.
void Xtc(Candidates& candidates, const SamplerOptions& options, double uniform);

}  // namespace tarn
