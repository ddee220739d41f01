// The mixer of mixers/short_conv/form.h.
#pragma once

#include <vector>

#include "config/mixer_spec.h"

namespace tarn::mixers::short_conv {

std::vector<MixerSpec> Mixers();

}  // namespace tarn::mixers::short_conv
