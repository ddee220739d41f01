// The key of mixers whose output norm has another eps than the model's norms.
#pragma once

#include "config/model_config.h"
#include "config/own_key.h"

namespace tarn {

/// The section of config.json; optional in the mixers that read it.
inline constexpr const char* kOutputNormSection = "output_norm";

OwnKey OutputNormKey();

/// eps of the output norm of a layer.
double OutputNormEps(const ModelConfig& layer);

}  // namespace tarn
