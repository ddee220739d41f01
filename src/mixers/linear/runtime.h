// The runtime half of linear attention.
#pragma once

#include <vector>

#include "runtime/stack/mixer.h"

namespace tarn::mixers {

std::vector<RuntimeMixerRow> LinearRuntimeMixers();

}  // namespace tarn::mixers
