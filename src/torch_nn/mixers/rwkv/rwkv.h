// The modules of RWKV-6 and RWKV-7 (config/rwkv_form.h).
#pragma once

#include <vector>

#include "torch_nn/mixers/registry.h"

namespace tarn::nn {

std::vector<MixerRow> RwkvRows();

}  // namespace tarn::nn
