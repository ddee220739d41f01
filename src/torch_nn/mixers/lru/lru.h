// The module of Griffin's recurrent block (mixers/lru/form.h).
#pragma once

#include <vector>

#include "torch_nn/mixers/registry.h"

namespace tarn::nn {

namespace lru {
std::vector<MixerRow> Mixers();
}

}  // namespace tarn::nn
