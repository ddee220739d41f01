// The runtime half of the mixer of mixers/convolution/form.h.
#pragma once

#include <vector>

#include "runtime/mixer/mixer.h"

namespace tarn::mixers {

namespace convolution {
std::vector<RuntimeMixerRow> RuntimeMixers();
}

}  // namespace tarn::mixers
