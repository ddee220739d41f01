// The mixers of mixers/gated/form.h: RetNet, Lightning, Mamba-2, GLA, HGRN2,
// DeltaNet, Gated DeltaNet, KDA and normed linear attention as one module,
// which its row of that table builds.
#pragma once

#include <vector>

#include "torch_nn/mixers/registry.h"

namespace tarn::nn {

namespace gated {
std::vector<MixerRow> Mixers();
}

}  // namespace tarn::nn
