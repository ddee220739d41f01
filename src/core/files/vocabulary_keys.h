// A tokenizer as the keys `tokenizer.ggml.*` of a GGUF file: plain values, so
// that the code for files and that for texts need not know each other.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tarn {

/// What a token is, by its number in files (llama_token_type of llama.h).
enum class TokenType : int32_t {
  kUndefined = 0,
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,      // never from a user's text
  kUserDefined = 4,  // found in the text before anything else
  kUnused = 5,       // stands for no text
  kByte = 6,         // "<0x41>"
};

struct VocabularyKeys {
  std::string model;  // "gpt2", "llama", "t5", "rwkv"
  std::string pre;    // the splitter's name; empty: the file has none
  std::vector<std::string_view> tokens;  // by id
  std::vector<TokenType> types;          // of all tokens, or empty: all normal
  std::vector<float> scores;             // of all tokens, or empty
  std::vector<std::string_view> merges;  // "left right", by rank
  std::optional<int64_t> bos, eos, unknown;
  std::optional<bool> add_bos, add_eos, add_space_prefix,
      remove_extra_whitespaces;
  bool charsmap = false;  // it has a compiled normaliser
  /// What the views refer to, where it is not the file that they were read
  /// from, which must then outlive them.
  std::shared_ptr<const void> owner = nullptr;
};

/// Whether a token with this text that is no ordinary one ends what a model
/// writes: files name one by its id at most, while models write several.
/// Source: llama-vocab.cpp, special_eog_ids.
bool EndsTurn(std::string_view token);

}  // namespace tarn
