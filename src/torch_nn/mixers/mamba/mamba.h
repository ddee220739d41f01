// The module of Mamba-1 (mixers/mamba/form.h).
#pragma once

#include <vector>

#include "torch_nn/mixers/registry.h"

namespace tarn::nn {

namespace mamba {
std::vector<MixerRow> Mixers();
}

}  // namespace tarn::nn
