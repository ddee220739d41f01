// The mixers of mixers/rwkv/form.h.
#pragma once

#include <vector>

#include "config/mixer_spec.h"

namespace tarn::mixers::rwkv {

std::vector<MixerSpec> Mixers();

}  // namespace tarn::mixers::rwkv
