// Softmax attention over all keys, near ones, or the largest scores, and its
// switch to linear attention at a length.
#pragma once

#include <memory>
#include <vector>

#include "torch_nn/mixers/registry.h"

namespace tarn::nn {

namespace softmax {
/// full, local, gated-full, exact-topk, conditional-full.
std::vector<MixerRow> Mixers();
}  // namespace softmax

/// The latent variant of mixers/softmax/form.h.
std::shared_ptr<Mixer> MakeLatent(const ModelConfig& layer, MixerPlace place);
std::shared_ptr<Mixer> MakeExactTopk(const ModelConfig& layer,
                                     MixerPlace place);
/// conditional-full: full up to length_limit tokens, then linear.
std::shared_ptr<Mixer> MakeConditional(const ModelConfig& layer,
                                       MixerPlace place);

}  // namespace tarn::nn
