// Options of sampling in files of sessions. Included by .cc files only.
#pragma once

#include <nlohmann/json.hpp>

#include "core/json/json_object.h"
#include "runtime/sampling/sampler_options.h"

namespace tarn {

nlohmann::ordered_json SamplerToJson(const SamplerOptions& options);
/// What SamplerToJson wrote; throws FormatError or ArgumentError.
SamplerOptions SamplerFromJson(const JsonObject& object);

}  // namespace tarn
