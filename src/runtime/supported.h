// What of all models the runtime can run.
#pragma once

#include <optional>

#include "core/config.h"

namespace tarn {

/// Nothing for a finished config whose model the runtime can run, otherwise a
/// FormatError that names the key of config.json, what would do, and what is
/// there.
std::optional<Error> CheckSupported(const ModelConfig& config);

}  // namespace tarn
