// Parallel mixers in the runtime.
#pragma once

#include <memory>

#include "runtime/mixer/mixer.h"

namespace tarn {

/// The mixer of a layer whose view has branches, from tensors under the prefix
/// of each (BranchPrefix): one after the other reads the same rows, and what
/// they give is added, branch_factor times each. It ends with the sum and has
/// neither a first nor a last product.
std::unique_ptr<RuntimeMixer> MakeParallelRuntime(const ModelConfig& layer,
                                                  MixerTensors& tensors);

}  // namespace tarn
