// How many layers a stack of a model has.
#pragma once

#include <cstdint>

#include "config/model_config.h"

namespace tarn {

/// Layers of the causal stack of a finished config: 0 for an encoder.
constexpr int64_t DecoderLayers(const ModelConfig& config) {
  return config.arch == Arch::kSeq2seq   ? config.n_decoder_layers
         : config.arch == Arch::kDecoder ? config.n_layers
                                         : 0;
}

}  // namespace tarn
