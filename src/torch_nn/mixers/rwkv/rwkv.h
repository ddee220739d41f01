// The modules of RWKV-6 and RWKV-7 (mixers/rwkv/form.h).
#pragma once

#include <vector>

#include "torch_nn/mixers/registry.h"

namespace tarn::nn {

namespace rwkv {
std::vector<MixerRow> Mixers();
}

}  // namespace tarn::nn
