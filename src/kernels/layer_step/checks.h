#pragma once

#include "kernels/layer_step/layer_step.h"

namespace tarn::layer_step {

/// Throws like LayerSteps.
void Check(const LayerStepCall& call);

}  // namespace tarn::layer_step
