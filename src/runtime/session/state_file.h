// States in files: what a sequence has read, kept for another process. A file
// belongs to one model, and its state continues with the same bits.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/error.h"
#include "core/file.h"
#include "runtime/model/model.h"

namespace tarn {
namespace state_file {
struct StateToWrite;
}

/// A state that has been checked and hashed and can be written. Refers to it.
class StateWriter {
 public:
  /// Throws as SaveState does before its first byte.
  StateWriter(const Model& model, const State& state);
  ~StateWriter();
  /// Of the file.
  uint64_t bytes() const;
  void Write(ByteSink& sink) const;

 private:
  std::unique_ptr<const state_file::StateToWrite> parts_;
  std::string head_;
};

/// Writes position, recurrence, source and last logits as one safetensors file,
/// with the same bytes for the same state. The state is read twice and never
/// copied: O(bytes) time, O(tensors) memory besides the sink's. Throws
/// ArgumentError for a state of another model, NumericError naming a part that
/// holds NaN or infinity (no model can continue from those), both before the
/// first byte; and what the sink throws. Tensors are F32; rounded keys and
/// values (ModelOptions::cache) are the bytes that the state holds, U8, and
/// `cache` of the metadata names their type.
void SaveState(const Model& model, const State& state, ByteSink& sink);
/// The same into a file that appears by rename. Throws IoError.
void SaveState(const Model& model, const State& state, const std::string& path);
/// Bytes of that file. O(tensors).
uint64_t StateFileBytes(const Model& model, const State& state);

/// Reads the state that SaveState wrote for a model of the same configuration,
/// weights, weight type and type of cache; it equals the saved one bit for bit.
/// Everything is checked: the model's fingerprint, version, every size before
/// memory is taken, every number, and a hash over all of it, so that damage
/// anywhere is found. The error is FormatError in one line, or IoError if the
/// file cannot be read. The hash is no signature: it does not protect against
/// tampering. Throws ArgumentError for a model that has no states,
/// std::bad_alloc.
Result<State> LoadState(const Model& model, const std::string& path);
/// The same from a file's bytes; `name` stands for the path in errors.
Result<State> LoadState(const Model& model, std::span<const uint8_t> bytes,
                        const std::string& name = "state");

}  // namespace tarn
