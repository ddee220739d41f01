// A source written as one safetensors file, a few rows at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "core/file.h"
#include "weights/weight_source.h"

namespace tarn {

/// How matrices and tensors of more axes are stored; tensors of one axis, which
/// are small and matter, stay as they are. A tensor in groups stays in groups
/// (quantised/stored_groups.h) with kAsTheyAre.
enum class StoredWeights { kAsTheyAre, kF32, kBF16 };

struct WeightFileOptions {
  StoredWeights stored = StoredWeights::kAsTheyAre;
  std::map<std::string, std::string> metadata = {{"format", "pt"}};
  /// Bytes of the file that the sink has already: the first ones, which are
  /// neither read nor written.
  uint64_t begun = 0;
  /// Called before the first and after each of the writes with the bytes of
  /// tensors that the sink has; false: stop, by throwing an Error of kind
  /// kInterrupted.
  std::function<bool(uint64_t done, uint64_t total)> progress = nullptr;
};

/// Bytes of the file's tensors.
uint64_t WeightFileBytes(const WeightSource& source,
                         const WeightFileOptions& options);

/// What the file begins with, length and header: names, shapes, types and
/// positions of its tensors.
std::string WeightFileHead(const WeightSource& source,
                           const WeightFileOptions& options);

/// Writes all tensors: those of larger numbers first, otherwise in their order,
/// and tensors in groups last, which are read once and in their order. What has
/// no encoding of safetensors is stored as F32. Memory: some MiB, the scales of
/// a tensor, and what the source takes. Throws IoError and what the source
/// throws.
void WriteWeights(const WeightSource& source, const WeightFileOptions& options,
                  ByteSink& to);

}  // namespace tarn
