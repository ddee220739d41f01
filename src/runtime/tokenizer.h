// Bytes in, token ids out, and back. Byte: 256 ids. Char: the sorted code
// points of a corpus, kept in the model directory's tokenizer.json.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"
#include "core/error.h"

namespace tarn {

/// Immutable after construction; thread-safe.
class Tokenizer {
 public:
  static Tokenizer Byte();
  /// Sorted, distinct code points; throws ArgumentError otherwise or above
  /// 1,114,112 entries.
  static Tokenizer Char(std::vector<uint32_t> code_points);
  /// Every code point that occurs in UTF-8 text; FormatError names the byte
  /// offset of the first invalid sequence.
  static Result<Tokenizer> CharFromText(std::string_view text);

  TokenizerKind kind() const { return kind_; }
  int64_t vocab_size() const;
  /// FormatError with the byte offset of an unknown or invalid character
  /// (char); never fails for byte. time O(bytes).
  Result<std::vector<int32_t>> Encode(std::string_view text) const;
  /// Appends the bytes of one token; throws ArgumentError outside the table.
  void Decode(int32_t token, std::string& out) const;
  std::string Decode(const std::vector<int32_t>& tokens) const;

  /// tokenizer.json: {"format_version":1,"type":"byte"} or {..., "type":"char",
  /// "code_points":[10,32,...]}. Same strictness as config.json.
  std::string ToJson() const;
  static Result<Tokenizer> FromJson(std::string_view json);
  /// Reads DIR/tokenizer.json and checks it against the config.
  static Result<Tokenizer> Open(const std::string& dir,
                                const ModelConfig& config);

 private:
  TokenizerKind kind_ = TokenizerKind::kByte;
  std::vector<uint32_t> code_points_;  // char: id -> code point, sorted
};

}  // namespace tarn
