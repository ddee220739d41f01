// The mixer of mixers/mamba/form.h.
#pragma once

#include <vector>

#include "config/mixer_spec.h"

namespace tarn::mixers::mamba {

std::vector<MixerSpec> Mixers();

}  // namespace tarn::mixers::mamba
