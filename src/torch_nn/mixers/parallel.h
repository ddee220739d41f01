// Parallel mixers of one layer.
#pragma once

#include <memory>

#include "torch_nn/mixers/mixer.h"

namespace tarn::nn {

/// The module of a layer whose view has branches: all read the same rows, and
/// what they give is added, branch_factor times each. Its children are those
/// modules, "branches.0" and so on. Throws as MakeMixer.
std::shared_ptr<Mixer> MakeParallelMixer(const ModelConfig& layer,
                                         MixerPlace place);

}  // namespace tarn::nn
