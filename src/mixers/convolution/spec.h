// The mixer of mixers/convolution/form.h.
#pragma once

#include <vector>

#include "config/mixer_spec.h"

namespace tarn::mixers::convolution {

std::vector<MixerSpec> Mixers();

}  // namespace tarn::mixers::convolution
