// The mixers of config/gated_form.h, of both the decay and the delta rule.
#pragma once

#include <vector>

#include "config/mixer_spec.h"

namespace tarn::mixers {

std::vector<MixerSpec> GatedMixers();

}  // namespace tarn::mixers
