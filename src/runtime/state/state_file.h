// States in files: what a sequence has read, kept for another process. A file
// belongs to one model, and its state continues with the same bits.
#pragma once

#include <cstdint>
#include <string>

#include "config/model_config.h"
#include "core/dtype.h"
#include "core/error.h"
#include "core/safetensors.h"
#include "runtime/model/model.h"

namespace tarn {

/// Writes position, recurrence, source and last logits as one safetensors file
/// that appears by rename, with the same bytes for the same state. O(bytes)
/// time and memory. Throws ArgumentError for a state of another model,
/// NumericError naming a part that holds NaN or infinity (no model can continue
/// from those), IoError.
void SaveState(const Model& model, const State& state, const std::string& path);

/// Reads the state that SaveState wrote for a model of the same configuration,
/// weights and weight type; it equals the saved one bit for bit. Everything is
/// checked: the model's fingerprint, version, every size before memory is
/// taken, every number, and a hash over all of it, so that damage anywhere is
/// found. The error is FormatError in one line, or IoError if the file cannot
/// be read. The hash is no signature: whoever forges a file chooses its
/// numbers. Throws ArgumentError for a model that has no states,
/// std::bad_alloc.
Result<State> LoadState(const Model& model, const std::string& path);

/// Identifies a model in its state files: a hash of the configuration, of the
/// type weights are held in, and of every tensor's name, type, shape and
/// 64-byte blocks at 17 places, first and last among them. The blocks are a
/// sample because opening a large model must not cost another pass over it: a
/// training update changes nearly every weight, so the sample tells checkpoints
/// apart, but it may miss a change made by hand to single weights. O(tensors).
uint64_t ModelFingerprint(const SafetensorsFile& file,
                          const ModelConfig& config, DType held);

}  // namespace tarn
