// Linear attention (Katharopoulos et al. 2020), any feature map.
#pragma once

#include <vector>

#include "torch_nn/mixers/registry.h"

namespace tarn::nn {

namespace linear {
std::vector<MixerRow> Mixers();
}

}  // namespace tarn::nn
