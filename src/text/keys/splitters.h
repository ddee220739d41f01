// The splitters that GGUF files name by `tokenizer.ggml.pre`, as steps of a
// tokenizer.json. Included by .cc files only, as core/json.h is.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "text/pipeline/pre_tokenizer.h"

namespace tarn {

/// What a name stands for in llama.cpp (llama-vocab.cpp), by the pattern of the
/// tokenizer.json that it was derived from.
struct NamedSplitter {
  std::vector<const char*> names;  // the first is written
  nlohmann::json pre_tokenizer;    // ends with bytes
  bool ignore_merges = false;      // a piece that is a token is taken as it is
  bool adds_bos = false;           // where a file does not say
};

/// All of them; other names have patterns that text/split lacks.
const std::vector<NamedSplitter>& NamedSplitters();
/// The row with a name, or null.
const NamedSplitter* FindSplitter(std::string_view name);
/// The first row that cuts by these steps, or null.
const NamedSplitter* SplitterOf(const std::vector<PreTokenizerStep>& steps,
                                bool ignore_merges);
/// "gpt-2, qwen2, ...": the first name of all rows, for messages.
std::string SplitterNames();

}  // namespace tarn
