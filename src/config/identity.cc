#include "config/identity.h"

#include <algorithm>

#include "config/fields.h"

namespace tarn {

std::string ConfigIdentity(const ModelConfig& config) {
  constexpr int kLayers = 4;  // the first with a pattern
  constexpr int kFirst = 2;  // the format that the oldest state files hashed
  ModelConfig finished = config;
  FinishConfig(finished);
  ModelConfig defaults;
  FinishConfig(defaults);
  int version = finished.layers.empty() ? kFirst : kLayers;
  for (const ConfigField& field : ConfigFields()) {
    if (ValueText(field, finished) == ValueText(field, defaults)) continue;
    version = std::max(version, field.since);
  }
  return FieldsText(finished, version, /*unread=*/false);
}

}  // namespace tarn
