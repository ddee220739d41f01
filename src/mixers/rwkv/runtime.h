// The runtime half of the mixers of mixers/rwkv/form.h.
#pragma once

#include <vector>

#include "runtime/mixer/mixer.h"

namespace tarn::mixers {

namespace rwkv {
std::vector<RuntimeMixerRow> RuntimeMixers();
}

}  // namespace tarn::mixers
