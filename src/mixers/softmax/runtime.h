// The runtime half of softmax attention over all keys, with a cache, or over a
// window of them.
#pragma once

#include <vector>

#include "runtime/stack/mixer.h"

namespace tarn::mixers {

std::vector<RuntimeMixerRow> SoftmaxRuntimeMixers();
std::vector<RuntimeMixerRow> LocalRuntimeMixers();
std::vector<RuntimeMixerRow> GatedSoftmaxRuntimeMixers();

}  // namespace tarn::mixers
