// The runtime half of softmax attention over all keys, with a cache, or over a
// window of them.
#pragma once

#include <memory>
#include <vector>

#include "runtime/mixer/mixer.h"

namespace tarn::mixers {

namespace softmax {
std::vector<RuntimeMixerRow> RuntimeMixers();
}
/// Keys and values of a source, which a decoder reads (runtime_cross.cc).
std::unique_ptr<RuntimeCross> MakeSoftmaxCross(const ModelConfig& layer);
RuntimeMixerRow LocalRuntimeMixer();
RuntimeMixerRow GatedSoftmaxRuntimeMixer();

}  // namespace tarn::mixers
