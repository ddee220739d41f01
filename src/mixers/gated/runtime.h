// The runtime half of the mixers of mixers/gated/form.h.
#pragma once

#include <vector>

#include "runtime/mixer/mixer.h"

namespace tarn::mixers {

namespace gated {
std::vector<RuntimeMixerRow> RuntimeMixers();
}

}  // namespace tarn::mixers
