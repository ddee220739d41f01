#include "data/text/corpus.h"

#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/rng.h"
#include "text/utf8.h"

namespace tarn::train {
namespace {

// Streams of Philox numbers: windows use the step itself, other users of the
// seed keep away from it (see trainer.cc).
constexpr uint64_t kCountersPerRow = uint64_t{1} << 20;

bool IsContinuation(char c) { return (c & 0xC0) == 0x80; }

// Bytes of the first `count` characters of valid UTF-8 text, all of it when
// there are fewer.
size_t CharacterBytes(const std::string& text, int64_t count) {
  size_t at = 0;
  for (; count > 0 && at < text.size(); --count) {
    do {
      ++at;
    } while (at < text.size() && IsContinuation(text[at]));
  }
  return at;
}

// Every `stride`-th entry is kept so that at most `limit` remain.
void Thin(std::vector<uint64_t>& starts, int64_t limit) {
  const int64_t size = static_cast<int64_t>(starts.size());
  if (size <= limit) return;
  for (int64_t i = 0; i < limit; ++i) starts[i] = starts[i * size / limit];
  starts.resize(limit);
}

std::set<uint32_t> CodePointsOf(const Tokenizer& tokenizer) {
  std::set<uint32_t> points;
  for (int64_t id = 0; id < tokenizer.vocab_size(); ++id) {
    std::string utf8;
    tokenizer.Decode(static_cast<int32_t>(id), utf8);
    points.insert(ReadUtf8(utf8).code_point);
  }
  return points;
}

Tokenizer CharactersOf(const TextFiles& files, int64_t file) {
  Result<Tokenizer> found = Tokenizer::CharFromText(files.contents(file));
  if (!found.ok()) {
    throw FormatError(StrCat(files.path(file), ": ", found.error().what(),
                             " (--tokenizer byte reads any file)"));
  }
  return std::move(found).value();
}

}  // namespace

Stream::Stream(const TextFiles& files, const std::vector<Slice>& slices)
    : files_(&files) {
  pieces_.reserve(slices.size() + 1);
  for (const Slice& slice : slices) {
    pieces_.push_back({slice.begin, bytes_});
    bytes_ += slice.length;
  }
  pieces_.push_back({0, bytes_});
}

void Stream::Read(uint64_t begin, uint64_t length, std::string& out) const {
  const auto after = std::upper_bound(
      pieces_.begin(), pieces_.end() - 1, begin,
      [](uint64_t at, const Piece& piece) { return at < piece.start; });
  size_t i = static_cast<size_t>(after - pieces_.begin()) - 1;
  while (length > 0) {
    const uint64_t skip = begin - pieces_[i].start;
    const uint64_t take =
        std::min(length, pieces_[i + 1].start - pieces_[i].start - skip);
    out += files_->At(pieces_[i].begin + skip, take);
    length -= take;
    begin += take;
    if (++i + 1 == pieces_.size()) i = 0, begin = 0;
  }
}

Corpus::Corpus(const TextFiles& files, const RecordSplit& split,
               Tokenizer tokenizer, int64_t seq_len, int64_t max_held_out)
    : tokenizer_(std::move(tokenizer)),
      seq_len_(seq_len),
      training_(files, split.training),
      held_out_(files, split.held_out) {
  if (tokenizer_.kind() == TokenizerKind::kBpe ||
      tokenizer_.kind() == TokenizerKind::kUnigram ||
      tokenizer_.kind() == TokenizerKind::kWorld) {
    token_bytes_ = TokenBytes(tokenizer_);
    training_tokens_ = TokenStream(files, split.training, tokenizer_);
    held_out_tokens_ = TokenStream(files, split.held_out, tokenizer_);
    if (training_tokens_.size() < 2 || held_out_tokens_.size() < 2) {
      throw FormatError("data", "more text",
                        StrCat(training_tokens_.size(), " tokens to train on, ",
                               held_out_tokens_.size(), " held out"));
    }
    FindEncodedWindows();
  } else {
    FindWindows(files);
  }
  covers_ = static_cast<int64_t>(starts_.size()) <= max_held_out;
  Thin(starts_, max_held_out);
}

void Corpus::FindEncodedWindows() {
  const auto step = static_cast<uint64_t>(seq_len_);
  for (uint64_t at = 0; at + 1 < held_out_tokens_.size(); at += step) {
    starts_.push_back(at);
  }
}

void Corpus::FindWindows(const TextFiles& files) {
  const auto tokens_at_least_two = [&](const Stream& stream) {
    return stream.bytes() >= 2 &&
           TokensAt(stream, 0, 2).size() <= stream.bytes();
  };
  if (!tokens_at_least_two(training_) || !tokens_at_least_two(held_out_)) {
    throw FormatError("data", "more text", StrCat(files.bytes(), " bytes"));
  }
  // A window's last token is the next one's first; the loop stops where no
  // token is left to predict.
  std::string text;
  for (uint64_t begin = 0;;) {
    starts_.push_back(begin);
    text = TokensAt(held_out_, begin, seq_len_);
    begin += text.size();
    if (begin >= held_out_.bytes()) break;
    if (begin + TokensAt(held_out_, begin, 1).size() >= held_out_.bytes()) {
      break;
    }
  }
}

std::string Corpus::TokensAt(const Stream& stream, uint64_t begin,
                             int64_t count) const {
  const bool bytes = tokenizer_.kind() == TokenizerKind::kByte;
  // A character has at most four bytes; the excess is cut off.
  const uint64_t most = static_cast<uint64_t>(count) * (bytes ? 1 : 4);
  std::string text;
  stream.Read(begin, most, text);
  if (!bytes) text.resize(CharacterBytes(text, count));
  return text;
}

Window Corpus::Encode(const std::string& text) const {
  Window window;
  window.tokens = tokenizer_.Encode(text).Take();
  std::string first;
  tokenizer_.Decode(window.tokens.front(), first);
  window.target_bytes = static_cast<int64_t>(text.size() - first.size());
  return window;
}

Window Corpus::WindowOf(std::vector<int32_t> tokens) const {
  Window window;
  for (size_t i = 1; i < tokens.size(); ++i) {
    window.target_bytes += token_bytes_[static_cast<size_t>(tokens[i])];
  }
  window.tokens = std::move(tokens);
  return window;
}

Window Corpus::TrainingWindow(uint64_t seed, int64_t step, int64_t row,
                              int64_t seq_len) const {
  Rng rng(seed, static_cast<uint64_t>(step),
          static_cast<uint64_t>(row) * kCountersPerRow);
  if (seq_len == 0) seq_len = seq_len_;
  if (encoded()) {
    const uint64_t first = rng.Below(training_tokens_.size());
    return WindowOf(
        training_tokens_.Read(first, static_cast<uint64_t>(seq_len) + 1));
  }
  uint64_t begin = rng.Below(training_.bytes());
  if (tokenizer_.kind() == TokenizerKind::kChar) {
    // Back to the first byte of the character the draw fell into: at most
    // three bytes, since records end between characters.
    std::string byte;
    for (training_.Read(begin, 1, byte); IsContinuation(byte[0]);) {
      byte.clear();
      training_.Read(--begin, 1, byte);
    }
  }
  return Encode(TokensAt(training_, begin, seq_len + 1));
}

Window Corpus::HeldOutWindow(int64_t index) const {
  const uint64_t begin = starts_[index];
  if (encoded()) {
    const uint64_t count = std::min<uint64_t>(
        static_cast<uint64_t>(seq_len_) + 1, held_out_tokens_.size() - begin);
    return WindowOf(held_out_tokens_.Read(begin, count));
  }
  std::string text = TokensAt(held_out_, begin, seq_len_ + 1);
  // Unlike training text, the held-out text is not a ring.
  text.resize(std::min<uint64_t>(text.size(), held_out_.bytes() - begin));
  return Encode(text);
}

Tokenizer BuildTokenizer(const TextFiles& files, TokenizerKind kind) {
  if (kind == TokenizerKind::kByte) return Tokenizer::Byte();
  if (kind != TokenizerKind::kChar) {
    throw ArgumentError("--tokenizer-file",
                        StrCat("the file of a '", Name(kind), "' tokenizer"),
                        "nothing");
  }
  std::set<uint32_t> points;
  for (int64_t file = 0; file < files.files(); ++file) {
    points.merge(CodePointsOf(CharactersOf(files, file)));
  }
  return Tokenizer::Char({points.begin(), points.end()});
}

void CheckCovered(const TextFiles& files, const Tokenizer& tokenizer) {
  if (tokenizer.kind() != TokenizerKind::kChar) return;
  const std::set<uint32_t> known = CodePointsOf(tokenizer);
  for (int64_t file = 0; file < files.files(); ++file) {
    for (uint32_t point : CodePointsOf(CharactersOf(files, file))) {
      if (known.count(point) != 0) continue;
      throw FormatError(
          files.path(file),
          StrCat("the ", known.size(), " characters of the model's tokenizer"),
          StrCat("code point ", point));
    }
  }
}

}  // namespace tarn::train
