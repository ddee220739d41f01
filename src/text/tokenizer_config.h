// tokenizer_config.json: what published models say besides tokenizer.json.
#pragma once

#include <optional>
#include <string>

#include "core/error.h"
#include "core/files/text_files.h"

namespace tarn {

/// The keys that bear on tokens; a file may have any others.
struct TokenizerConfig {
  /// Whether a text gets a BOS before it and an EOS after it; empty: as
  /// tokenizer.json says.
  std::optional<bool> add_bos, add_eos;
  std::string bos, eos;  // texts of the tokens; empty: none
};

/// Reads tokenizer_config.json; without that file all is empty. FormatError
/// names the key that is wrong.
Result<TokenizerConfig> ReadTokenizerConfig(const TextFiles& files);

}  // namespace tarn
