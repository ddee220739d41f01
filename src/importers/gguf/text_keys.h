// What a GGUF file says about texts: tokenizers, templates, where a text ends.
// They are read as the files that a directory would have.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "core/files/text_files.h"
#include "weights/gguf/gguf_file.h"
#include "weights/gguf/gguf_writer.h"

namespace tarn {

/// One file of a directory that keys stand for.
struct GgufText {
  const char* name;  // "tokenizer.json"
  /// Whether the file has the keys; O(1).
  bool (*has)(const GgufFile& file);
  /// The contents. Throws FormatError.
  std::string (*text)(const GgufFile& file);
};

/// All of them.
const std::vector<GgufText>& GgufTexts();

/// The way back: the keys of the texts that a model directory has; throws
/// FormatError for a tokenizer that GGUF cannot hold. vocab_size: rows of the
/// embedding.
void AddTextKeys(const TextFiles& from, const ModelConfig& config,
                 GgufKeyList& to);

}  // namespace tarn
