// Softmax attention over all keys, near ones, or the largest scores, and its
// switch to linear attention at a length.
#pragma once

#include <vector>

#include "torch_nn/mixers/registry.h"

namespace tarn::nn {

namespace softmax {
/// full, local, exact-topk, conditional-full, gated-full.
std::vector<MixerRow> Mixers();
}
/// The mixer of mixers/softmax/form.h.
MixerRow GatedSoftmaxRow();

/// conditional-full: full up to length_limit tokens, then linear.
std::shared_ptr<Mixer> MakeConditional(const ModelConfig& layer,
                                       MixerPlace place);

}  // namespace tarn::nn
