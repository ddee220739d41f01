// The parts of a spec that follow from form.h, for its three presets.
#pragma once

#include <vector>

#include "config/model_config.h"

namespace tarn::mixers {

void CheckSoftmaxForm(const ModelConfig& layer);
std::vector<NamedShape> SoftmaxFormWeights(const ModelConfig& layer);
StateSpec SoftmaxFormState(const ModelConfig& layer);
MixerCost SoftmaxFormCost(const ModelConfig& layer, int64_t n, bool causal);
std::vector<const char*> SoftmaxFormReads(const ModelConfig& layer);

}  // namespace tarn::mixers
