// Text whose tokens are not its characters: encoded once, kept as tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "data/text/records.h"
#include "data/text/text_files.h"
#include "text/tokenizer.h"

namespace tarn::train {

/// The tokens of slices of the text, one slice after the other; no token
/// extends past the end of a slice. 4 bytes a token. Immutable and thread-safe
/// after construction.
class TokenStream {
 public:
  TokenStream() = default;
  /// Throws FormatError with the file for text the tokenizer cannot encode.
  TokenStream(const TextFiles& files, const std::vector<Slice>& slices,
              const Tokenizer& tokenizer);
  uint64_t size() const { return tokens_.size(); }
  /// `count` tokens from `begin` < size() on; past the end reading continues at
  /// the start.
  std::vector<int32_t> Read(uint64_t begin, uint64_t count) const;

 private:
  std::vector<int32_t> tokens_;
};

/// Bytes of each token, by id.
std::vector<uint32_t> TokenBytes(const Tokenizer& tokenizer);

}  // namespace tarn::train
