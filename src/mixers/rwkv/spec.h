// The mixers of config/rwkv_form.h.
#pragma once

#include <vector>

#include "config/mixer_spec.h"

namespace tarn::mixers {

std::vector<MixerSpec> RwkvMixers();

}  // namespace tarn::mixers
