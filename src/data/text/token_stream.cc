#include "data/text/token_stream.h"

#include <algorithm>
#include <string>

#include "core/error.h"

namespace tarn::train {
namespace {

int64_t FileOf(const TextFiles& files, uint64_t offset) {
  int64_t file = files.files() - 1;
  while (files.base(file) > offset) --file;
  return file;
}

}  // namespace

TokenStream::TokenStream(const TextFiles& files,
                         const std::vector<Slice>& slices,
                         const Tokenizer& tokenizer) {
  for (const Slice& slice : slices) {
    const int64_t file = FileOf(files, slice.begin);
    const Result<std::vector<int32_t>> tokens = tokenizer.Encode(
        files.At(slice.begin, slice.length), slice.begin - files.base(file));
    if (!tokens.ok()) {
      throw FormatError(StrCat(files.path(file), ": ", tokens.error().what()));
    }
    tokens_.insert(tokens_.end(), tokens.value().begin(), tokens.value().end());
  }
}

std::vector<int32_t> TokenStream::Read(uint64_t begin, uint64_t count) const {
  std::vector<int32_t> tokens;
  tokens.reserve(count);
  while (count > 0) {
    const uint64_t take = std::min<uint64_t>(count, tokens_.size() - begin);
    const auto from = tokens_.begin() + static_cast<int64_t>(begin);
    tokens.insert(tokens.end(), from, from + static_cast<int64_t>(take));
    count -= take;
    begin = 0;
  }
  return tokens;
}

std::vector<uint32_t> TokenBytes(const Tokenizer& tokenizer) {
  std::vector<uint32_t> bytes;
  std::string text;
  for (int64_t id = 0; id < tokenizer.vocab_size(); ++id) {
    text.clear();
    tokenizer.Decode(static_cast<int32_t>(id), text);
    bytes.push_back(static_cast<uint32_t>(text.size()));
  }
  return bytes;
}

}  // namespace tarn::train
