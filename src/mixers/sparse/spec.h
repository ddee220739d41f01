// Attention through hashes: clustered queries (Vyas et al. 2020) and reformer
// (Kitaev et al. 2020). Section "sparse" of config.json.
#pragma once

#include <vector>

#include "config/model_config.h"

namespace tarn::mixers::sparse {

/// clustered, improved-clustered, causal-improved-clustered, reformer. They are
/// computed from whole sequences and have no recurrent form.
std::vector<MixerSpec> Mixers();

}  // namespace tarn::mixers::sparse
