// The stage of the temperature, fixed or chosen by the entropy.
#pragma once

#include "runtime/sampling/candidates.h"
#include "runtime/sampling/sampler_options.h"

namespace tarn {

/// Divides logits by the temperature, which is above 0. With dynatemp_range r
/// above 0 and two candidates or more it is T - r (at least 0) to T + r, by the
/// entropy as a fraction of the largest that as many candidates can have, to
/// the power of dynatemp_exponent; 0 leaves the best alone. O(candidates).
void DivideByTemperature(Candidates& candidates, const SamplerOptions& options);

}  // namespace tarn
