// The runtime half of the mixers of config/rwkv_form.h.
#pragma once

#include <vector>

#include "runtime/mixer/mixer.h"

namespace tarn::mixers {

std::vector<RuntimeMixerRow> RwkvRuntimeMixers();

}  // namespace tarn::mixers
