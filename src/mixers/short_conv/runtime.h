// The runtime half of the mixer of mixers/short_conv/form.h.
#pragma once

#include <vector>

#include "runtime/mixer/mixer.h"

namespace tarn::mixers {

namespace short_conv {
std::vector<RuntimeMixerRow> RuntimeMixers();
}

}  // namespace tarn::mixers
