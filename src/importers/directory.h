// What the rest of the program asks of published directories.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/model_config.h"
#include "core/error.h"
#include "weights/weight_source.h"

namespace tarn {

/// Whether a config.json is that of a published model: it has a `model_type`.
/// False for texts that are no JSON objects.
bool IsPublishedConfig(std::string_view json);

/// The finished configuration. FormatError in one line for a type that is not
/// in the table, for unknown keys, and for values that tarn cannot run. where:
/// path of the file, for messages. Thread-safe; O(text).
Result<ModelConfig> ImportConfig(std::string_view json,
                                 const std::string& where);

/// The weights under tarn's names. Nothing is copied. FormatError for tensors
/// that are absent or that no part of the model reads. config: of ImportConfig
/// for the same text.
Result<std::shared_ptr<const WeightSource>> ImportWeights(
    std::string_view json, const ModelConfig& config,
    std::shared_ptr<const WeightSource> source);

/// The value of a key that says nothing about the function, such as
/// eos_token_id: of the file, or else of its text_config; null where both lack
/// it.
Result<nlohmann::json> PublishedKey(std::string_view json, const char* key,
                                    const std::string& where);

/// The types of the table, in its order.
std::vector<const char*> PublishedModelTypes();

}  // namespace tarn
