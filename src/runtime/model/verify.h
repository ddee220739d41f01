// Everything that can be wrong with a model's files, found in one pass.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/error.h"
#include "importers/model_files.h"

namespace tarn {

/// What VerifyModel found. `problems` is empty for a valid model.
struct VerifyReport {
  /// One error a fault, each a single line: file, tensor, byte offset, wanted,
  /// got.
  std::vector<Error> problems;
  int64_t tensors = 0;   // in the weight files, 0 when they cannot be read
  int64_t elements = 0;  // of all tensors
};

/// Checks of a directory config.json, the weights (model.safetensors, or the
/// shards of its index), tokenizer.json (except for ctc, which reads no tokens)
/// and, for classify and ctc, labels.json, or all of these in a GGUF file: each
/// file by itself (size, strict
/// JSON, header, ranges), the tensors against the shapes the config implies
/// (missing, unexpected, wrong), every weight for NaN and infinity, and the
/// tokenizer's table against vocab_size. Continues after a fault as long as the
/// rest can still be checked. Never throws because of the files' contents.
/// Reads each weight once: O(file size) time, O(largest of the files that are
/// not weights) memory. Thread-safe.
VerifyReport VerifyModel(const ModelPath& model);

}  // namespace tarn
