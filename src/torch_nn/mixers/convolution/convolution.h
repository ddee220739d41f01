// The module of LFM2's gated short convolution (mixers/convolution/form.h).
#pragma once

#include <vector>

#include "torch_nn/mixers/registry.h"

namespace tarn::nn {

namespace convolution {
std::vector<MixerRow> Mixers();
}

}  // namespace tarn::nn
