// The mixer of mixers/lru/form.h.
#pragma once

#include <vector>

#include "config/mixer_spec.h"

namespace tarn::mixers::lru {

std::vector<MixerSpec> Mixers();

}  // namespace tarn::mixers::lru
