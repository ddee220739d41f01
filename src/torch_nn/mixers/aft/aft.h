// Attention-free transformers (Zhai et al. 2021): weighted averages per
// channel.
#pragma once

#include <vector>

#include "torch_nn/mixers/registry.h"

namespace tarn::nn {

namespace aft {
/// aft-full, aft-simple.
std::vector<MixerRow> Mixers();
}  // namespace aft

std::shared_ptr<Mixer> MakeAftFull(const ModelConfig& layer, MixerPlace place);
std::shared_ptr<Mixer> MakeAftSimple(const ModelConfig& layer,
                                     MixerPlace place);

}  // namespace tarn::nn
