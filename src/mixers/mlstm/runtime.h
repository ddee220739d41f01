// The runtime half of the mixer of mixers/mlstm/form.h.
#pragma once

#include <vector>

#include "runtime/mixer/mixer.h"

namespace tarn::mixers {

namespace mlstm {
std::vector<RuntimeMixerRow> RuntimeMixers();
}

}  // namespace tarn::mixers
