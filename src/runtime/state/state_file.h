// States in files: what a sequence has read, kept for another process. A file
// belongs to one model and goes on with the same bits.
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
/// that appears by rename, the same bytes for the same state. Costs O(bytes)
/// time and memory. Throws ArgumentError for a state of another model,
/// NumericError naming a part that holds NaN or infinity (no model computes on
/// from those), IoError.
void SaveState(const Model& model, const State& state, const std::string& path);

/// The state that SaveState wrote for a model of the same configuration,
/// weights and weight type; it equals the saved one bit for bit. Everything is
/// checked: the model's fingerprint, version, every size before memory is
/// taken, every number, and a hash over all of it, so that damage anywhere is
/// found. The error is FormatError (IoError: cannot be read) in one line. The
/// hash is no signature: whoever makes a file on purpose chooses its numbers.
/// Throws ArgumentError for a model that has no states, std::bad_alloc.
Result<State> LoadState(const Model& model, const std::string& path);

/// Names a model in its state files: a hash of the configuration, the type
/// weights are held in, and of every tensor its name, type, shape and 64-byte
/// blocks at 17 places, first and last among them. A sample, for opening a
/// large model must not take a pass over it more: an update of training
/// changes nearly every weight, so the sample tells checkpoints apart, but not
/// a change made by hand to single weights. O(tensors).
uint64_t ModelFingerprint(const SafetensorsFile& file,
                          const ModelConfig& config, DType held);

}  // namespace tarn
