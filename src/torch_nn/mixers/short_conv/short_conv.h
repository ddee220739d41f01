// The module of LFM2's gated short convolution (mixers/short_conv/form.h).
#pragma once

#include <vector>

#include "torch_nn/mixers/registry.h"

namespace tarn::nn {

namespace short_conv {
std::vector<MixerRow> Mixers();
}

}  // namespace tarn::nn
