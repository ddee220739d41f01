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

  bool operator==(const Tokenizer&) const = default;
  TokenizerKind kind() const { return kind_; }
  int64_t vocab_size() const;
  /// FormatError with the byte offset of an unknown or invalid character
  /// (char); never fails for byte. `offset`: where `text` begins in its source,
  /// for the message only. Time O(bytes) for byte, O(bytes log vocab) for char.
  Result<std::vector<int32_t>> Encode(std::string_view text,
                                      uint64_t offset = 0) const;
  /// Appends the bytes of one token (1 for byte, 1 to 4 of UTF-8 for char);
  /// throws ArgumentError outside the table.
  void Decode(int32_t token, std::string& out) const;
  std::string Decode(const std::vector<int32_t>& tokens) const;

  /// tokenizer.json: {"format_version":1,"type":"byte"} or {..., "type":"char",
  /// "code_points":[10,32,...]}. Same strictness as config.json.
  std::string ToJson() const;
  static Result<Tokenizer> FromJson(std::string_view json);
  /// Reads DIR/tokenizer.json and checks it against the config: the kinds are
  /// equal and every id is a row of the embedding (the model may have more).
  static Result<Tokenizer> Open(const std::string& dir,
                                const ModelConfig& config);
  /// Reads DIR/tokenizer.json and checks it by itself.
  static Result<Tokenizer> OpenAlone(const std::string& dir);

 private:
  TokenizerKind kind_ = TokenizerKind::kByte;
  std::vector<uint32_t> code_points_;  // char: id -> code point, sorted
};

}  // namespace tarn
