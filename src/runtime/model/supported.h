// Which models the runtime can run.
#pragma once

#include <optional>

#include "config/model_config.h"

namespace tarn {

/// Nothing for a finished config whose model the runtime can run, otherwise a
/// FormatError that names the key of config.json, the accepted values, and the
/// value found.
std::optional<Error> CheckSupported(const ModelConfig& config);

}  // namespace tarn
