// The layers of Gated DeltaNet in Qwen's GGUF files.
#pragma once

#include <string>

#include "config/model_config.h"
#include "importers/gguf/tensors.h"

namespace tarn {

/// The tensors of one layer, `own` in the file and `theirs` published. packed:
/// whether the published type has its rows by key heads, as Qwen3-Next, and the
/// file does not; else the file has the value heads in another order. view: the
/// configuration as the layer sees it. Runs in both directions.
void MoveQwenDelta(const ModelConfig& view, bool packed,
                   const std::string& theirs, const std::string& own,
                   GgufTensors& tensors);

}  // namespace tarn
