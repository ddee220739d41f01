// Models as GGUF files: the rows of architecture.h backwards.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "core/error.h"
#include "core/files/vocabulary_keys.h"
#include "importers/model_files.h"
#include "weights/gguf/gguf_writer.h"
#include "weights/weight_source.h"

namespace tarn {

/// A file to write.
struct GgufForm {
  std::string architecture, model_type;
  GgufKeyList keys;
  std::shared_ptr<const WeightSource> weights;  // under the file's names
  /// GgufWriteOptions::stored.
  std::function<const Encoding&(const WeightTensor&)> stored;
};

/// Words for the numbers of matrices: "stored", as they are, and types.
/// Vectors, norms, convolutions and their like are F32 in all files. Rows that
/// a block does not divide are F16, as llama.cpp's converter has it, and so are
/// stored groups of numbers that GGUF lacks.
std::vector<std::string> GgufNumberTypes();

/// The published types that become GGUF files.
std::vector<const char*> GgufModelTypes();

/// A finished configuration and its weights as a GGUF file. vocabulary: of the
/// model's tokenizer; texts: its files, of which the template is one. numbers:
/// one of GgufNumberTypes. ArgumentError for another; FormatError for what no
/// published type that llama.cpp runs has, or what llama.cpp cannot hold.
Result<GgufForm> PublishGguf(const ModelConfig& config,
                             std::shared_ptr<const WeightSource> weights,
                             const VocabularyKeys& vocabulary,
                             const ModelPath& texts,
                             const std::string& numbers);

}  // namespace tarn
