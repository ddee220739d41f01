// Tokens are the code points of a table.
#include <algorithm>
#include <optional>
#include <utility>

#include "core/json.h"
#include "text/tokenizer_form.h"
#include "text/utf8.h"

namespace tarn {
namespace {

constexpr size_t kMaxTable = 1'114'112;  // code points that exist

std::string CodePointText(uint32_t code_point) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string digits;
  for (int shift = 20; shift >= 0; shift -= 4) {
    const uint32_t digit = code_point >> shift & 0xF;
    if (digit != 0 || !digits.empty() || shift < 16) digits += kHex[digit];
  }
  return "U+" + digits;
}

// What is wrong with a table of code points, or nothing.
std::string TableFault(const std::vector<uint32_t>& table) {
  if (table.empty() || table.size() > kMaxTable) {
    return StrCat(table.size(), " entries");
  }
  for (size_t i = 0; i < table.size(); ++i) {
    if (!IsScalarValue(table[i])) return StrCat(table[i], " at entry ", i);
    if (i > 0 && table[i] <= table[i - 1]) {
      return StrCat(table[i], " after ", table[i - 1], " at entry ", i);
    }
  }
  return "";
}

constexpr char kTableWanted[] =
    "1 to 1114112 Unicode scalar values, sorted and distinct";

FormatError Utf8Error(std::string_view rest, uint64_t offset) {
  return FormatError(
      StrCat("text: byte ", offset), "valid UTF-8",
      StrCat("byte ", static_cast<int>(static_cast<uint8_t>(rest[0])),
             " in no valid sequence"));
}

Result<std::vector<uint32_t>> CodePointsOf(const nlohmann::json& table) {
  const std::string where = StrCat(kTokenizerJson, ": code_points");
  if (!table.is_array() || table.size() > kMaxTable) {
    return FormatError(
        where, kTableWanted,
        table.is_array() ? StrCat(table.size(), " entries") : JsonGiven(table));
  }
  std::vector<uint32_t> code_points;
  code_points.reserve(table.size());
  for (const nlohmann::json& entry : table) {
    const std::optional<int64_t> value = JsonInteger(entry);
    if (!value || *value < 0 || *value > int64_t{kMaxCodePoint}) {
      return FormatError(
          where, kTableWanted,
          StrCat(JsonGiven(entry), " at entry ", code_points.size()));
    }
    code_points.push_back(static_cast<uint32_t>(*value));
  }
  const std::string fault = TableFault(code_points);
  if (!fault.empty()) return FormatError(where, kTableWanted, fault);
  return code_points;
}

class CharTokens final : public TokenizerForm {
 public:
  explicit CharTokens(std::vector<uint32_t> code_points)
      : code_points_(std::move(code_points)) {}
  TokenizerKind kind() const override { return TokenizerKind::kChar; }
  int64_t vocab_size() const override {
    return static_cast<int64_t>(code_points_.size());
  }
  Result<std::vector<int32_t>> Encode(
      std::string_view text, const EncodeOptions& options) const override {
    std::vector<int32_t> tokens;
    tokens.reserve(text.size());
    for (size_t i = 0; i < text.size();) {
      const std::string_view rest = text.substr(i);
      const Utf8Head head = ReadUtf8(rest);
      if (head.kind != Utf8Head::kValid) {
        return Utf8Error(rest, options.offset + i);
      }
      const auto found = std::lower_bound(code_points_.begin(),
                                          code_points_.end(), head.code_point);
      if (found == code_points_.end() || *found != head.code_point) {
        return FormatError(
            StrCat("text: byte ", options.offset + i),
            StrCat("one of the model's ", code_points_.size(), " characters"),
            CodePointText(head.code_point));
      }
      tokens.push_back(static_cast<int32_t>(found - code_points_.begin()));
      i += head.bytes;
    }
    return tokens;
  }
  void Decode(int32_t token, std::string& out) const override {
    AppendUtf8(code_points_[static_cast<size_t>(token)], out);
  }
  std::string ToJson() const override {
    return TokenizerJson(kind(), "code_points", code_points_);
  }
  bool Equals(const TokenizerForm& other) const override {
    return code_points_ == static_cast<const CharTokens&>(other).code_points_;
  }

 private:
  const std::vector<uint32_t> code_points_;  // id -> code point, sorted
};

}  // namespace

TokenizerFormPointer CharForm(std::vector<uint32_t> code_points) {
  const std::string fault = TableFault(code_points);
  if (!fault.empty()) throw ArgumentError("code_points", kTableWanted, fault);
  return std::make_shared<CharTokens>(std::move(code_points));
}

Result<Tokenizer> Tokenizer::CharFromText(std::string_view text) {
  std::vector<bool> seen(kMaxTable, false);
  uint64_t offset = 0;
  while (offset < text.size()) {
    const std::string_view rest = text.substr(offset);
    const Utf8Head head = ReadUtf8(rest);
    if (head.kind != Utf8Head::kValid) return Utf8Error(rest, offset);
    seen[head.code_point] = true;
    offset += head.bytes;
  }
  std::vector<uint32_t> code_points;
  for (uint32_t c = 0; c < kMaxTable; ++c) {
    if (seen[c]) code_points.push_back(c);
  }
  if (code_points.empty()) {
    return FormatError("text", "at least one character", "none");
  }
  return Char(std::move(code_points));
}

Result<Tokenizer> ReadChar(const nlohmann::json& code_points) {
  if (code_points.is_null()) {
    return FormatError(StrCat(kTokenizerJson, ": code_points"), kTableWanted,
                       "nothing");
  }
  Result<std::vector<uint32_t>> table = CodePointsOf(code_points);
  if (!table.ok()) return table.error();
  return Tokenizer::Char(std::move(table.value()));
}

}  // namespace tarn
