// The runtime half of the mixers of config/gated_form.h.
#pragma once

#include <vector>

#include "runtime/mixer/mixer.h"

namespace tarn::mixers {

std::vector<RuntimeMixerRow> GatedRuntimeMixers();

}  // namespace tarn::mixers
