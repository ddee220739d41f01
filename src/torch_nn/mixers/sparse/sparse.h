// Attention through hashes: clustered queries (Vyas et al. 2020) and reformer
// (Kitaev et al. 2020). Their hashes are drawn by their place in eval mode and
// by torch's default generator in training; they have no recurrent form.
#pragma once

#include <vector>

#include "torch_nn/mixers/registry.h"

namespace tarn::nn {

/// clustered, improved-clustered, causal-improved-clustered, reformer.
namespace sparse {
std::vector<MixerRow> Mixers();
}

}  // namespace tarn::nn
