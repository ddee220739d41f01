// States on disk: a stack's state parked and taken up again.
#pragma once

#include <string>

#include "core/config.h"
#include "pytorch/attention_state.h"

namespace tarn::nn {

/// Writes the state (float32) of a model with this config: safetensors with the
/// config, the lengths and the format version in its metadata, by rename.
/// Throws DTypeError for a state that is not float32, IoError.
void SaveState(const StackState& state, const ModelConfig& config,
               const std::string& path);

/// Reads it back, the same bits. Throws FormatError naming the file and what
/// differs where it is of another version, of a model with another config, or
/// has tensors missing, misshapen or too many; IoError.
StackState LoadState(const ModelConfig& config, const std::string& path);

}  // namespace tarn::nn
