// The runtime half of the mixer of mixers/mamba/form.h.
#pragma once

#include <vector>

#include "runtime/mixer/mixer.h"

namespace tarn::mixers {

namespace mamba {
std::vector<RuntimeMixerRow> RuntimeMixers();
}

}  // namespace tarn::mixers
