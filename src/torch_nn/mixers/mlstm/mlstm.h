// The module of xLSTM's mLSTM (mixers/mlstm/form.h).
#pragma once

#include <vector>

#include "torch_nn/mixers/registry.h"

namespace tarn::nn {

namespace mlstm {
std::vector<MixerRow> Mixers();
}

}  // namespace tarn::nn
