// The runtime half of aft-simple, whose state is three numbers a channel.
#pragma once

#include <vector>

#include "runtime/mixer/mixer.h"

namespace tarn::mixers {

namespace aft {
std::vector<RuntimeMixerRow> RuntimeMixers();
}

}  // namespace tarn::mixers
