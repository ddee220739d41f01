// Softmax attention over all keys, near ones, or the largest scores, and its
// switch to linear attention at a length.
#pragma once

#include <vector>

#include "torch_nn/mixers/registry.h"

namespace tarn::nn {

/// full, local, exact-topk, conditional-full.
std::vector<MixerRow> SoftmaxRows();
/// config/gated_softmax_form.h.
std::vector<MixerRow> GatedSoftmaxRows();

/// conditional-full: full up to length_limit tokens, then linear.
std::shared_ptr<Mixer> MakeConditional(const ModelConfig& layer,
                                       MixerPlace place);

}  // namespace tarn::nn
