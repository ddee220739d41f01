// The mixers of mixers/gated/form.h, of both the decay and the delta rule.
#pragma once

#include <vector>

#include "config/mixer_spec.h"

namespace tarn::mixers::gated {

std::vector<MixerSpec> Mixers();

}  // namespace tarn::mixers::gated
