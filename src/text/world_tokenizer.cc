#include "text/world_tokenizer.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "core/text.h"
#include "text/utf8.h"

namespace tarn {
namespace {

constexpr size_t kMaxTokenBytes = 256;  // steps of a match; World's have 128
constexpr size_t kMaxTokens = size_t{1} << 20;
constexpr size_t kMaxTextBytes = size_t{1} << 24;  // World's has 1.1 MB

// A whole number in decimal and nothing else; -1 for anything else.
int64_t NumberOf(std::string_view text) {
  int64_t value = -1;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && at == end && text[0] != '-' ? value : -1;
}

FormatError LiteralError(std::string_view literal) {
  return FormatError("literal", "a Python text or bytes literal",
                     Quoted(literal));
}

// `digits` hexadecimal digits from `at` on; -1 when they are not there.
int64_t HexAt(std::string_view text, size_t at, size_t digits) {
  if (at + digits > text.size()) return -1;
  const std::string_view hex = text.substr(at, digits);
  uint32_t value = 0;
  const char* end = hex.data() + hex.size();
  const auto [stop, error] = std::from_chars(hex.data(), end, value, 16);
  return error == std::errc() && stop == end ? int64_t{value} : -1;
}

// Bytes a backslash and the letter after it take, and the character they
// stand for (-1: no such escape).
struct Escape {
  size_t bytes;
  int64_t point;
};

Escape ReadEscape(std::string_view text, bool is_bytes) {
  if (text.size() < 2) return {0, -1};
  switch (text[1]) {
    case '\\':
    case '\'':
    case '"':
      return {2, text[1]};
    case 'n':
      return {2, '\n'};
    case 'r':
      return {2, '\r'};
    case 't':
      return {2, '\t'};
    case 'x':
      return {4, HexAt(text, 2, 2)};
    case 'u':
      return {6, is_bytes ? -1 : HexAt(text, 2, 4)};
    case 'U':
      return {10, is_bytes ? -1 : HexAt(text, 2, 8)};
    default:
      return {0, -1};
  }
}

}  // namespace

Result<std::string> ParsePythonLiteral(std::string_view literal) {
  std::string_view body = literal;
  const bool is_bytes = body.starts_with('b');
  if (is_bytes) body.remove_prefix(1);
  if (body.size() < 2 || (body[0] != '\'' && body[0] != '"') ||
      body.back() != body[0]) {
    return LiteralError(literal);
  }
  const char quote = body[0];
  body = body.substr(1, body.size() - 2);
  std::string bytes;
  while (!body.empty()) {
    int64_t point = -1;
    size_t taken = 0;
    if (body[0] == '\\') {
      const Escape escape = ReadEscape(body, is_bytes);
      point = escape.point;
      taken = escape.bytes;
    } else if (body[0] != quote) {
      const Utf8Head head = ReadUtf8(body);
      if (head.kind == Utf8Head::kValid) point = head.code_point;
      taken = head.bytes;
      if (is_bytes && point >= 0x80) point = -1;
    }
    if (point < 0 || !IsScalarValue(static_cast<uint32_t>(point))) {
      return LiteralError(literal);
    }
    if (is_bytes) {
      bytes += static_cast<char>(point);
    } else {
      AppendUtf8(static_cast<uint32_t>(point), bytes);
    }
    body.remove_prefix(taken);
  }
  return bytes;
}

namespace {

// The token of one line, whose id must be `id`.
std::string ReadLine(std::string_view line, size_t id,
                     const std::string& place) {
  // Literals hold spaces: the id ends at the first, the length begins after
  // the last.
  const size_t first = line.find(' '), last = line.rfind(' ');
  if (first == line.npos || last <= first) {
    throw FormatError(place, "an id, a literal and a length", Quoted(line));
  }
  if (NumberOf(line.substr(0, first)) != static_cast<int64_t>(id)) {
    throw FormatError(place, StrCat("the id ", id, " (they run on from 1)"),
                      Quoted(line.substr(0, first)));
  }
  Result<std::string> token =
      ParsePythonLiteral(line.substr(first + 1, last - first - 1));
  if (!token.ok()) {
    throw FormatError(place, token.error().wanted(), token.error().given());
  }
  const std::string& bytes = token.value();
  if (bytes.empty() || bytes.size() > kMaxTokenBytes) {
    throw FormatError(place,
                      StrCat("a token of 1 to ", kMaxTokenBytes, " bytes"),
                      StrCat(bytes.size(), " bytes"));
  }
  const std::string_view length = line.substr(last + 1);
  if (NumberOf(length) != static_cast<int64_t>(bytes.size())) {
    throw FormatError(place, StrCat("the length ", bytes.size()),
                      Quoted(length));
  }
  return std::move(token).Take();
}

std::vector<std::string> ReadTokens(std::string_view text) {
  std::vector<std::string> tokens{""};  // 0: end of text
  while (!text.empty()) {
    const std::string place = StrCat("vocabulary: line ", tokens.size());
    if (tokens.size() == kMaxTokens) {
      throw FormatError(place, StrCat("at most ", kMaxTokens - 1, " tokens"),
                        "more");
    }
    const size_t end = std::min(text.find('\n'), text.size());
    tokens.push_back(ReadLine(text.substr(0, end), tokens.size(), place));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return tokens;
}

// Requires distinct tokens and every single byte, so encoding cannot fail.
void CheckTokens(const std::vector<std::string>& tokens) {
  std::vector<std::string_view> sorted(tokens.begin(), tokens.end());
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) {
    throw FormatError("vocabulary", "each token once",
                      Quoted(*twice) + " twice");
  }
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    if (!std::binary_search(sorted.begin(), sorted.end(),
                            std::string_view(&c, 1))) {
      throw FormatError("vocabulary", "a token for every single byte",
                        StrCat("none for byte ", byte));
    }
  }
}

}  // namespace

WorldTokenizer::WorldTokenizer(std::string text,
                               std::vector<std::string> tokens)
    : text_(std::move(text)), tokens_(std::move(tokens)) {
  std::vector<std::pair<std::string_view, int32_t>> strings;
  for (size_t id = 1; id < tokens_.size(); ++id) {
    strings.push_back({tokens_[id], static_cast<int32_t>(id)});
  }
  trie_ = ByteTrie(std::move(strings));
}

Result<WorldTokenizer> WorldTokenizer::FromText(std::string_view text) {
  if (text.size() > kMaxTextBytes) {
    return FormatError("vocabulary",
                       StrCat("at most ", kMaxTextBytes, " bytes"),
                       StrCat(text.size()));
  }
  try {
    std::vector<std::string> tokens = ReadTokens(text);
    CheckTokens(tokens);
    return WorldTokenizer(std::string(text), std::move(tokens));
  } catch (const FormatError& error) {
    return Error(error);
  }
}

std::vector<int32_t> WorldTokenizer::Encode(std::string_view text) const {
  std::vector<int32_t> ids;
  while (!text.empty()) {
    const ByteTrie::Match match = trie_.Longest(text);
    ids.push_back(match.id);
    text.remove_prefix(match.bytes);
  }
  return ids;
}

}  // namespace tarn
