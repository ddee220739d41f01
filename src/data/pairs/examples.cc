#include "data/pairs/examples.h"

#include "core/error.h"
#include "core/text.h"
#include "text/utf8.h"

namespace tarn::train {
namespace {

// False when the text is not UTF-8.
bool MarkCharacters(std::string_view text, std::vector<bool>& seen) {
  while (!text.empty()) {
    const Utf8Head head = ReadUtf8(text);
    if (head.kind != Utf8Head::kValid) return false;
    seen[head.code_point] = true;
    text.remove_prefix(head.bytes);
  }
  return true;
}

}  // namespace

Tokenizer BuildPairTokenizer(const TextFiles& files, const PairSplit& split,
                             TokenizerKind kind, bool targets) {
  if (kind == TokenizerKind::kByte) return Tokenizer::Byte();
  if (kind != TokenizerKind::kChar) {
    throw ArgumentError("--tokenizer-file",
                        StrCat("the file of a '", Name(kind), "' tokenizer"),
                        "nothing");
  }
  std::vector<bool> seen(size_t{kMaxCodePoint} + 1);
  seen['\n'] = targets;
  for (const std::vector<Pair>* side : {&split.training, &split.held_out}) {
    for (const Pair& pair : *side) {
      if (MarkCharacters(pair.input, seen) &&
          (!targets || MarkCharacters(pair.output, seen))) {
        continue;
      }
      throw FormatError(PlaceOf(files, pair),
                        "UTF-8 (--tokenizer byte reads any text)",
                        "other bytes");
    }
  }
  std::vector<uint32_t> points;
  for (uint32_t point = 0; point <= kMaxCodePoint; ++point) {
    if (seen[point]) points.push_back(point);
  }
  return Tokenizer::Char(std::move(points));
}

int32_t NewlineToken(const Tokenizer& tokenizer) {
  const Result<std::vector<int32_t>> tokens = tokenizer.Encode("\n");
  if (!tokens.ok() || tokens.value().size() != 1) {
    throw FormatError(
        "tokenizer", "a token that is a line end alone",
        tokens.ok() ? StrCat(tokens.value().size(), " tokens") : "none");
  }
  return tokens.value()[0];
}

Examples::Examples(const TextFiles& files, const std::vector<Pair>& pairs,
                   const Tokenizer& tokenizer, const Labels* labels,
                   int64_t max_tokens) {
  labels_.reserve(pairs.size());
  starts_.reserve(2 * pairs.size() + 1);
  for (const Pair& pair : pairs) {
    const auto add = [&](std::string_view text) {
      const Result<std::vector<int32_t>> encoded = tokenizer.Encode(text);
      if (!encoded.ok()) {
        throw FormatError(
            StrCat(PlaceOf(files, pair), ": ", encoded.error().what()));
      }
      const auto count = static_cast<int64_t>(encoded.value().size());
      if (count < 1 || count > max_tokens) {
        throw FormatError(PlaceOf(files, pair),
                          StrCat("1 to ", max_tokens, " tokens (--seq-len)"),
                          StrCat(count));
      }
      tokens_.insert(tokens_.end(), encoded.value().begin(),
                     encoded.value().end());
    };
    add(pair.input);
    starts_.push_back(static_cast<int64_t>(tokens_.size()));
    if (labels == nullptr) add(pair.output);
    starts_.push_back(static_cast<int64_t>(tokens_.size()));
    labels_.push_back(labels == nullptr ? -1 : labels->Find(pair.output));
    if (labels != nullptr && labels_.back() < 0) {
      throw FormatError(
          PlaceOf(files, pair),
          StrCat("one of the model's ", labels->size(), " labels"),
          Quoted(pair.output));
    }
  }
}

std::span<const int32_t> Examples::Field(int64_t field) const {
  return std::span(tokens_).subspan(
      static_cast<size_t>(starts_[field]),
      static_cast<size_t>(starts_[field + 1] - starts_[field]));
}

}  // namespace tarn::train
