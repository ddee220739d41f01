// Checks of the gradient's arguments, shared by its files.
#pragma once

#include "kernels/gated_norm/gated_norm.h"

namespace tarn {

/// Throws as CheckGatedNorm does.
void CheckGatedNormGradients(const GatedNormOptions& options,
                             const GatedNormInputs& in,
                             const GatedNormGradients& gradients);

}  // namespace tarn
