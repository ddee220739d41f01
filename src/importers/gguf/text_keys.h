// What a GGUF file says about texts: its tokenizer, its chat template, where a
// text ends. The tokenizer stays as keys; the rest is read as the files that a
// directory would have.
#pragma once

#include <string>
#include <vector>

#include "config/model_config.h"
#include "core/files/text_files.h"
#include "core/files/vocabulary_keys.h"
#include "importers/model_files.h"
#include "weights/gguf/gguf_file.h"
#include "weights/gguf/gguf_writer.h"

namespace tarn {

/// One file of a directory that keys stand for.
struct GgufText {
  const char* name;  // "generation_config.json"
  /// Whether the file has the keys; O(1).
  bool (*has)(const GgufFile& file);
  /// The contents. Throws FormatError.
  std::string (*text)(const GgufFile& file);
};

/// All of them: tokenizer_config.json with the texts of special tokens and the
/// chat template, and generation_config.json with the tokens that end a text.
const std::vector<GgufText>& GgufTexts();

/// Whether a tokenizer is there: a model of tokens that is not "none".
bool HasVocabularyKeys(const GgufFile& file);
/// Its keys, which refer to the file. Throws FormatError that names file and
/// key. O(tokens).
VocabularyKeys VocabularyOf(const GgufFile& file);

/// The way back: the keys of a model's tokenizer and of its other texts, which
/// `from` has as files. vocab_size of `config` says how many tokens the file
/// must list. Throws FormatError for texts that GGUF cannot hold.
void AddTextKeys(const VocabularyKeys& vocabulary, const ModelPath& from,
                 const ModelConfig& config, GgufKeyList& to);

}  // namespace tarn
