// The mixer of mixers/mlstm/form.h.
#pragma once

#include <vector>

#include "config/mixer_spec.h"

namespace tarn::mixers::mlstm {

std::vector<MixerSpec> Mixers();

}  // namespace tarn::mixers::mlstm
