// The text that stands for a configuration where it is hashed.
#pragma once

#include <string>

#include "config/model_config.h"

namespace tarn {

/// ConfigToJson without the keys that a later format added and this model does
/// not use: the text of the earliest format, from the second on, that can say
/// all of it. So a model keeps its identity, and its state files, when formats
/// grow. Two configurations have the same text only if they are equal. Throws
/// what FinishConfig throws. Thread-safe.
std::string ConfigIdentity(const ModelConfig& config);

}  // namespace tarn
