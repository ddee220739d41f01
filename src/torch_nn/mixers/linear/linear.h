// Linear attention (Katharopoulos et al. 2020), any feature map.
#pragma once

#include <vector>

#include "torch_nn/mixers/registry.h"

namespace tarn::nn {

std::vector<MixerRow> LinearRows();

}  // namespace tarn::nn
