#include "text/tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/file.h"
#include "core/json.h"
#include "core/text.h"
#include "text/bpe_json.h"
#include "text/id_text.h"
#include "text/utf8.h"
#include "text/world_tokenizer.h"

namespace tarn {
namespace {

constexpr size_t kMaxTable = 1'114'112;  // code points that exist
// A full table of code points takes 8 bytes an entry ("1114111,"); the largest
// BPE files in use take 20 MB or so.
constexpr uint64_t kMaxJsonBytes = 64 << 20;
constexpr char kWhere[] = "tokenizer.json";
constexpr int64_t kMaxIds = int64_t{1} << 24;  // config.json's limit

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
  const std::string where = StrCat(kWhere, ": code_points");
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

// The first key that tokenizer.json must not have. table: the one besides
// format_version and type, or "".
std::optional<std::string> UnknownKey(const nlohmann::json& root,
                                      const std::string& table) {
  for (const auto& [key, value] : root.items()) {
    if (key == "format_version" || key == "type") continue;
    if (key == table && !table.empty()) continue;
    return key;
  }
  return std::nullopt;
}

Result<Tokenizer> WorldOf(const nlohmann::json& text) {
  const std::string where = StrCat(kWhere, ": vocabulary");
  if (!text.is_string()) {
    return FormatError(where, "the text of a vocabulary file",
                       text.is_null() ? "nothing" : JsonGiven(text));
  }
  Result<WorldTokenizer> world =
      WorldTokenizer::FromText(text.get_ref<const std::string&>());
  if (!world.ok()) {
    const Error& error = world.error();
    return FormatError(StrCat(kWhere, ": ", error.where()), error.wanted(),
                       error.given());
  }
  return Tokenizer::World(std::move(world).Take());
}

Result<Tokenizer> IdsOf(const nlohmann::json& size) {
  const std::optional<int64_t> count = JsonInteger(size);
  if (!count || *count < 1 || *count > kMaxIds) {
    return FormatError(StrCat(kWhere, ": vocab_size"), StrCat("1 to ", kMaxIds),
                       size.is_null() ? "nothing" : JsonGiven(size));
  }
  return Tokenizer::Ids(*count);
}

// The key that a type has besides format_version and type, or "".
std::string TableKey(const std::string& type) {
  if (type == "char") return "code_points";
  if (type == "world") return "vocabulary";
  return type == "ids" ? "vocab_size" : "";
}

Result<Tokenizer> BpeOf(const nlohmann::json& root) {
  Result<BpeDefinition> definition = BpeFromJson(root);
  if (!definition.ok()) return definition.error();
  try {
    return Tokenizer::Bpe(std::move(definition).Take());
  } catch (const FormatError& error) {
    return Error(error);
  }
}

}  // namespace

Tokenizer Tokenizer::Byte() { return Tokenizer(); }

Tokenizer Tokenizer::Char(std::vector<uint32_t> code_points) {
  const std::string fault = TableFault(code_points);
  if (!fault.empty()) throw ArgumentError("code_points", kTableWanted, fault);
  Tokenizer tokenizer;
  tokenizer.kind_ = TokenizerKind::kChar;
  tokenizer.code_points_ = std::move(code_points);
  return tokenizer;
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

Tokenizer Tokenizer::Ids(int64_t vocab_size) {
  if (vocab_size < 1 || vocab_size > kMaxIds) {
    throw ArgumentError("vocab_size", StrCat("1 to ", kMaxIds),
                        StrCat(vocab_size));
  }
  Tokenizer tokenizer;
  tokenizer.kind_ = TokenizerKind::kIds;
  tokenizer.ids_ = vocab_size;
  return tokenizer;
}

Tokenizer Tokenizer::Bpe(BpeDefinition definition) {
  Tokenizer tokenizer;
  tokenizer.kind_ = TokenizerKind::kBpe;
  tokenizer.bpe_ = std::make_shared<const BpeTokenizer>(std::move(definition));
  return tokenizer;
}

Tokenizer Tokenizer::World(WorldTokenizer vocabulary) {
  Tokenizer tokenizer;
  tokenizer.kind_ = TokenizerKind::kWorld;
  tokenizer.world_ =
      std::make_shared<const WorldTokenizer>(std::move(vocabulary));
  return tokenizer;
}

bool Tokenizer::operator==(const Tokenizer& other) const {
  if (kind_ != other.kind_ || code_points_ != other.code_points_ ||
      ids_ != other.ids_) {
    return false;
  }
  if (kind_ == TokenizerKind::kBpe) {
    return bpe_->definition() == other.bpe_->definition();
  }
  return kind_ != TokenizerKind::kWorld ||
         world_->text() == other.world_->text();
}

int64_t Tokenizer::vocab_size() const {
  switch (kind_) {
    case TokenizerKind::kChar:
      return static_cast<int64_t>(code_points_.size());
    case TokenizerKind::kBpe:
      return static_cast<int64_t>(bpe_->definition().tokens.size());
    case TokenizerKind::kWorld:
      return world_->vocab_size();
    case TokenizerKind::kIds:
      return ids_;
    default:
      return 256;
  }
}

const BpeDefinition* Tokenizer::bpe() const {
  return bpe_ == nullptr ? nullptr : &bpe_->definition();
}

Result<std::vector<int32_t>> Tokenizer::Encode(
    std::string_view text, const EncodeOptions& options) const {
  if (kind_ != TokenizerKind::kBpe) return Encode(text, options.offset);
  return bpe_->Encode(text, options.allow_special, options.offset);
}

Result<std::vector<int32_t>> Tokenizer::Encode(std::string_view text,
                                               uint64_t offset) const {
  if (kind_ == TokenizerKind::kBpe) return bpe_->Encode(text, false, offset);
  if (kind_ == TokenizerKind::kWorld) return world_->Encode(text);
  if (kind_ == TokenizerKind::kIds) return IdsFromText(text, ids_, offset);
  std::vector<int32_t> tokens;
  tokens.reserve(text.size());
  if (kind_ == TokenizerKind::kByte) {
    for (char c : text) tokens.push_back(static_cast<uint8_t>(c));
    return tokens;
  }
  for (size_t i = 0; i < text.size();) {
    const std::string_view rest = text.substr(i);
    const Utf8Head head = ReadUtf8(rest);
    if (head.kind != Utf8Head::kValid) return Utf8Error(rest, offset + i);
    const auto found = std::lower_bound(code_points_.begin(),
                                        code_points_.end(), head.code_point);
    if (found == code_points_.end() || *found != head.code_point) {
      return FormatError(
          StrCat("text: byte ", offset + i),
          StrCat("one of the model's ", code_points_.size(), " characters"),
          CodePointText(head.code_point));
    }
    tokens.push_back(static_cast<int32_t>(found - code_points_.begin()));
    i += head.bytes;
  }
  return tokens;
}

void Tokenizer::Decode(int32_t token, std::string& out) const {
  if (token < 0 || token >= vocab_size()) {
    throw ArgumentError("token", StrCat("0 to ", vocab_size() - 1),
                        StrCat(token));
  }
  if (kind_ == TokenizerKind::kByte) {
    out += static_cast<char>(token);
  } else if (kind_ == TokenizerKind::kBpe) {
    out += bpe_->Bytes(token);
  } else if (kind_ == TokenizerKind::kWorld) {
    out += world_->Bytes(token);
  } else if (kind_ == TokenizerKind::kIds) {
    AppendId(token, out);
  } else {
    AppendUtf8(code_points_[static_cast<size_t>(token)], out);
  }
}

std::string Tokenizer::Decode(const std::vector<int32_t>& tokens) const {
  std::string out;
  out.reserve(tokens.size());
  for (int32_t token : tokens) Decode(token, out);
  return out;
}

std::string Tokenizer::ToJson() const {
  if (kind_ == TokenizerKind::kBpe) return BpeToJson(bpe_->definition());
  nlohmann::ordered_json root;
  root["format_version"] = 1;
  root["type"] = Name(kind_);
  if (kind_ == TokenizerKind::kChar) root["code_points"] = code_points_;
  if (kind_ == TokenizerKind::kWorld) root["vocabulary"] = world_->text();
  if (kind_ == TokenizerKind::kIds) root["vocab_size"] = ids_;
  return root.dump() + "\n";
}

Result<Tokenizer> Tokenizer::FromJson(std::string_view json) {
  Result<nlohmann::json> parsed = ParseStrictJson(json, kWhere, kMaxJsonBytes);
  if (!parsed.ok()) return parsed.error();
  const nlohmann::json& root = parsed.value();
  if (!root.is_object()) {
    return FormatError(kWhere, "an object", JsonGiven(root));
  }
  // Hugging Face's form has a model and no format_version.
  if (root.contains("model") && !root.contains("format_version")) {
    return BpeOf(root);
  }
  const nlohmann::json version = root.value("format_version", nlohmann::json());
  if (JsonInteger(version) != 1) {
    return FormatError(StrCat(kWhere, ": format_version"), "1",
                       version.is_null() ? "nothing" : JsonGiven(version));
  }
  const nlohmann::json type = root.value("type", nlohmann::json());
  if (type != "byte" && type != "char" && type != "world" && type != "ids") {
    return FormatError(StrCat(kWhere, ": type"),
                       "\"byte\", \"char\", \"world\" or \"ids\"",
                       type.is_null() ? "nothing" : JsonGiven(type));
  }
  const std::optional<std::string> unknown =
      UnknownKey(root, TableKey(type.get_ref<const std::string&>()));
  if (unknown) return FormatError(kWhere, "no other keys", Quoted(*unknown));
  if (type == "byte") return Byte();
  if (type == "ids") return IdsOf(root.value("vocab_size", nlohmann::json()));
  if (type == "world")
    return WorldOf(root.value("vocabulary", nlohmann::json()));
  if (!root.contains("code_points")) {
    return FormatError(StrCat(kWhere, ": code_points"), kTableWanted,
                       "nothing");
  }
  Result<std::vector<uint32_t>> table = CodePointsOf(root["code_points"]);
  if (!table.ok()) return table.error();
  return Char(std::move(table.value()));
}

}  // namespace tarn
