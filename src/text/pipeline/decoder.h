// What a tokenizer.json does to the texts of tokens before they become a text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace tarn {

struct DecoderStep {
  enum class Kind : uint8_t {
    kByteLevel,     // GPT-2's alphabet undone
    kReplace,       // every `pattern` by `content`
    kByteFallback,  // "<0x41>" is a byte
    kFuse,          // all texts become one
    kStrip,         // up to `left`, `right` times `content` at the ends
    kMetaspace,     // `pattern` by a space; in the first text by nothing, if
                    // `left` is not 0
  };
  Kind kind;
  std::string pattern = {}, content = {};
  int64_t left = 0, right = 0;
  bool operator==(const DecoderStep&) const = default;
};

enum class DecodedBytes : uint8_t {
  kAsTheyAre,  // bytes that are not UTF-8 stay
  kAsText,     // U+FFFD for them, as the `tokenizers` package has it
};

/// The text of tokens. O(bytes) for each step.
std::string DecodeTokens(const std::vector<DecoderStep>& steps,
                         std::vector<std::string> texts, DecodedBytes bytes);

/// Appends what one token adds to a text that it does not begin, its bytes as
/// they are.
void DecodeToken(const std::vector<DecoderStep>& steps, std::string text,
                 std::string& out);

/// The same within a text that begins with `progress`, which is that of one
/// Strip after Fuse.
void DecodeToken(const std::vector<DecoderStep>& steps, std::string text,
                 DecodeProgress& progress, std::string& out);

/// The byte that a token "<0x41>" stands for, or -1.
int ByteOfToken(const std::string& text);

}  // namespace tarn
