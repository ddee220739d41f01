// The runtime half of linear attention.
#pragma once

#include <memory>
#include <vector>

#include "runtime/mixer/mixer.h"

namespace tarn::mixers {

namespace linear {
std::vector<RuntimeMixerRow> RuntimeMixers();
}
/// Its sums over a source, which a decoder reads (runtime_cross.cc).
std::unique_ptr<RuntimeCross> MakeLinearCross(const ModelConfig& layer);

}  // namespace tarn::mixers
