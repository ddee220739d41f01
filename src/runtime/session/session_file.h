// Sessions in files: parked by one process and restored, with the same value,
// by the same or another.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/error.h"
#include "core/file.h"
#include "runtime/session/session.h"

namespace tarn {

/// Writes a session as one safetensors file (docs/model-format.md): its state
/// as SaveState writes it, tokens, what is pending, the text with its sampler,
/// snapshots and marks. Snapshots that were not asked for are thinned: those
/// that stay are at distances from the end that at least double. What it holds
/// is never recomputed by the one that loads it. O(bytes). Throws NumericError
/// naming a part that holds NaN or infinity, before the first byte, and what
/// the sink throws.
void SaveSession(const Session& session, ByteSink& sink);
/// The same into a file that appears by rename. Throws IoError.
void SaveSession(const Session& session, const std::string& path);

/// Reads a session that SaveSession wrote for a model of the same
/// configuration, weights, weight type and type of cache; it equals the saved
/// one bit for bit, and its text draws the same tokens. Everything is checked:
/// the model's fingerprint, every size before memory is taken, every number,
/// token and position, and a hash over all of it. FormatError in one line, or
/// IoError. The hash does not protect against tampering; any bytes are safe to
/// load. `snapshots`: those of the file beyond these options are dropped.
Result<Session> LoadSession(const LoadedModel& model, const std::string& path,
                            const SnapshotOptions& snapshots = {});
/// The same from a file's bytes; `name` stands for the path in errors.
Result<Session> LoadSession(const LoadedModel& model,
                            std::span<const uint8_t> bytes,
                            const std::string& name = "session",
                            const SnapshotOptions& snapshots = {});

}  // namespace tarn
