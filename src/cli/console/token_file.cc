#include "cli/console/token_file.h"

#include <algorithm>
#include <limits>

#include "cli/cli.h"
#include "cli/console/signals.h"
#include "text/utf8.h"

namespace tarn::cli {
namespace {

constexpr size_t kPieceBytes = 1 << 16;
constexpr size_t kPieceTokens = 4096;
constexpr size_t kMaxTextBytes = size_t{1} << 30;  // of a text read as a whole

bool ReadsWhole(TokenizerKind kind) {
  return kind == TokenizerKind::kBpe || kind == TokenizerKind::kUnigram ||
         kind == TokenizerKind::kWorld || kind == TokenizerKind::kIds;
}

}  // namespace

TokenFile::TokenFile(const std::string& path, const Tokenizer& tokenizer,
                     int64_t max_tokens, InputForm form)
    : path_(path),
      tokenizer_(tokenizer),
      input_(path, form),
      left_(max_tokens > 0 ? max_tokens : std::numeric_limits<int64_t>::max()),
      whole_(ReadsWhole(tokenizer.kind())) {}

bool TokenFile::Next(std::vector<int32_t>& tokens) {
  tokens.clear();
  if (left_ == 0 || PendingSignal() != 0) return false;
  const bool first = given_tokens_ == 0;
  const uint64_t before = bytes_;
  if (!(whole_ ? NextOfWhole(tokens) : NextPiece(tokens))) return false;
  if (first) first_bytes_ = TextBytes({tokens.data(), 1}, 0);
  if (static_cast<int64_t>(tokens.size()) > left_) {
    tokens.resize(static_cast<size_t>(left_));
    bytes_ = before + TextBytes(tokens, given_tokens_);
  }
  given_tokens_ += tokens.size();
  left_ -= static_cast<int64_t>(tokens.size());
  return true;
}

bool TokenFile::NextPiece(std::vector<int32_t>& tokens) {
  while (more_ && tokens.empty()) {
    more_ = input_.Read(kPieceBytes, held_);
    if (PendingSignal() != 0) return false;
    size_t ready = held_.size();
    if (more_ && tokenizer_.kind() == TokenizerKind::kChar) {
      ready -= UnfinishedUtf8Tail(held_);
    }
    tokens = Encode(std::string_view(held_).substr(0, ready));
    bytes_ += ready;
    held_.erase(0, ready);
  }
  return !tokens.empty();
}

bool TokenFile::NextOfWhole(std::vector<int32_t>& tokens) {
  if (more_) ReadWhole();
  const size_t count = std::min(kPieceTokens, all_.size() - given_);
  const auto begin = all_.begin() + static_cast<std::ptrdiff_t>(given_);
  tokens.assign(begin, begin + static_cast<std::ptrdiff_t>(count));
  bytes_ += TextBytes(tokens, given_);
  given_ += count;
  // Normalising may have changed their number: the file's bytes are counted.
  if (given_ == all_.size()) bytes_ = whole_bytes_;
  return count > 0;
}

void TokenFile::ReadWhole() {
  std::string text;
  while (PendingSignal() == 0 && text.size() <= kMaxTextBytes &&
         input_.Read(1 << 20, text)) {
  }
  more_ = false;
  if (PendingSignal() != 0) return;
  if (text.size() > kMaxTextBytes) {
    throw ExitError(kExitBadModel, StrCat(InputName(path_), ": want at most ",
                                          kMaxTextBytes, " bytes, got more"));
  }
  all_ = Encode(text);
  whole_bytes_ = text.size();
  AddBeginning();
}

// Published models' texts begin with tokens such as <bos>. Those that end a
// text are no part of it here.
void TokenFile::AddBeginning() {
  EncodeOptions ends;
  ends.add_special = true;
  const auto around = tokenizer_.Encode("", ends);
  if (!around.ok() || around.value().empty() || all_.empty()) return;
  const std::vector<int32_t>& both = around.value();
  // What comes before a text is what also begins one that is not empty.
  const auto one = tokenizer_.Encode("0", ends);
  if (!one.ok()) return;
  const size_t most = std::min(both.size(), one.value().size());
  while (beginning_ < most && both[beginning_] == one.value()[beginning_]) {
    ++beginning_;
  }
  all_.insert(all_.begin(), both.begin(),
              both.begin() + static_cast<std::ptrdiff_t>(beginning_));
}

std::vector<int32_t> TokenFile::Encode(std::string_view text) const {
  if (text.empty()) return {};
  auto tokens = tokenizer_.Encode(text, bytes_);
  if (!tokens.ok()) {
    throw ExitError(kExitBadModel,
                    StrCat(InputName(path_), ": ", tokens.error().what()));
  }
  return std::move(tokens).Take();
}

uint64_t TokenFile::TextBytes(std::span<const int32_t> tokens,
                              size_t first) const {
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (first + i >= beginning_) tokenizer_.Decode(tokens[i], text);
  }
  return text.size();
}

}  // namespace tarn::cli
