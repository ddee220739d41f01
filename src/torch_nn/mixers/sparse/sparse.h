// Attention through hashes: clustered queries (Vyas et al. 2020) and reformer
// (Kitaev et al. 2020). They hash by their place in eval mode, by torch's
// default generator in training, and have no recurrent form.
#pragma once

#include <vector>

#include "torch_nn/mixers/registry.h"

namespace tarn::nn {

/// clustered, improved-clustered, causal-improved-clustered, reformer.
std::vector<MixerRow> SparseRows();

}  // namespace tarn::nn
