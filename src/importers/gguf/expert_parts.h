// Mixtures of experts that are published expert by expert, and are one tensor
// for all of them in GGUF files.
#pragma once

#include <string>

#include "config/model_config.h"
#include "importers/gguf/tensors.h"

namespace tarn {

/// What an expert's matrices are called where it is published; gate null: it
/// has none.
struct GgufExpertNames {
  const char *gate, *up, *down;
};
/// theirs: before the expert's number. own: the layer in the file. view: the
/// configuration as the layer sees it.
void MoveGgufExperts(const ModelConfig& view, const std::string& theirs,
                     const GgufExpertNames& names, const std::string& own,
                     GgufTensors& tensors);

}  // namespace tarn
