// Which models the runtime can run.
#pragma once

#include <optional>

#include "config/model_config.h"

namespace tarn {

/// Nothing for a finished config whose model the runtime can run, otherwise a
/// FormatError that names the key of config.json, the accepted values, and the
/// value found.
std::optional<Error> CheckSupported(const ModelConfig& config);

/// Layers of the causal stack of a finished config: 0 for an encoder.
constexpr int64_t DecoderLayers(const ModelConfig& config) {
  return config.arch == Arch::kSeq2seq   ? config.n_decoder_layers
         : config.arch == Arch::kDecoder ? config.n_layers
                                         : 0;
}

}  // namespace tarn
