// Attention free transformer (Zhai et al. 2021): an exponentially weighted mean
// by channel. Section "aft" of config.json.
#pragma once

#include <vector>

#include "config/model_config.h"

namespace tarn::mixers::aft {

/// aft-full, aft-simple.
std::vector<MixerSpec> Mixers();

}  // namespace tarn::mixers::aft
