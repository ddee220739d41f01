// Models of tarn in the published form: what importer.h's tables read, written
// by the same tables.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "core/error.h"
#include "weights/weight_source.h"

namespace tarn {

struct PublishedForm {
  std::string model_type;
  std::string config;  // text of config.json
  /// The tensors under their published names, one of them in memory at a time.
  std::shared_ptr<const WeightSource> weights;
};

/// The types that can be written, in the order of the table.
std::vector<const char*> WritableModelTypes();

/// A finished configuration and its weights as a published type; `type` empty:
/// the first type that has the configuration. ArgumentError for a type that
/// cannot be written; FormatError naming the key that no type, or not this
/// one, can express, or the tensor whose numbers the published form lacks (the
/// head's bias, unless it is 0).
Result<PublishedForm> Publish(const ModelConfig& config,
                              std::shared_ptr<const WeightSource> weights,
                              const std::string& type);

}  // namespace tarn
