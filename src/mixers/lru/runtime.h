// The runtime half of the mixer of mixers/lru/form.h.
#pragma once

#include <vector>

#include "runtime/mixer/mixer.h"

namespace tarn::mixers {

namespace lru {
std::vector<RuntimeMixerRow> RuntimeMixers();
}

}  // namespace tarn::mixers
