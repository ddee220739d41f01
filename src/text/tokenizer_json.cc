// tokenizer.json, read by the rows of its types.
#include <optional>
#include <utility>

#include "core/json.h"
#include "core/text.h"
#include "text/bpe_json.h"
#include "text/tokenizer_form.h"

namespace tarn {
namespace {

// A full table of code points takes 8 bytes an entry ("1114111,"); the largest
// BPE files in use take 20 MB or so.
constexpr uint64_t kMaxJsonBytes = 64 << 20;

constexpr TokenizerFormRow kTokenizerForms[] = {
    {"byte", "", ReadByte},
    {"char", "code_points", ReadChar},
    {"world", "vocabulary", ReadWorld},
    {"ids", "vocab_size", ReadIds},
};

const TokenizerFormRow* FindForm(const nlohmann::json& type) {
  for (const TokenizerFormRow& row : kTokenizerForms) {
    if (type == row.type) return &row;
  }
  return nullptr;
}

// "byte", "char", "world" or "ids", each in quotes.
std::string TypesWanted() {
  std::string wanted;
  constexpr size_t kCount = std::size(kTokenizerForms);
  for (size_t i = 0; i < kCount; ++i) {
    wanted += i == 0 ? "" : i + 1 == kCount ? " or " : ", ";
    wanted += StrCat("\"", kTokenizerForms[i].type, "\"");
  }
  return wanted;
}

// The first key that the file must not have.
std::optional<std::string> UnknownKey(const nlohmann::json& root,
                                      std::string_view key_of_type) {
  for (const auto& [key, value] : root.items()) {
    if (key == "format_version" || key == "type") continue;
    if (key == key_of_type && !key.empty()) continue;
    return key;
  }
  return std::nullopt;
}

}  // namespace

std::string TokenizerJson(TokenizerKind kind, const char* key,
                          nlohmann::ordered_json value) {
  nlohmann::ordered_json root;
  root["format_version"] = 1;
  root["type"] = Name(kind);
  if (key != nullptr) root[key] = std::move(value);
  return root.dump() + "\n";
}

Result<Tokenizer> Tokenizer::FromJson(std::string_view json) {
  Result<nlohmann::json> parsed =
      ParseStrictJson(json, kTokenizerJson, kMaxJsonBytes);
  if (!parsed.ok()) return parsed.error();
  return ReadTokenizer(parsed.value());
}

bool IsHuggingFaceForm(const nlohmann::json& root) {
  return root.is_object() && root.contains("model") &&
         !root.contains("format_version");
}

Result<Tokenizer> ReadTokenizer(const nlohmann::json& root) {
  if (!root.is_object()) {
    return FormatError(kTokenizerJson, "an object", JsonGiven(root));
  }
  if (IsHuggingFaceForm(root)) {
    return IsPlainBpe(root) ? ReadBpe(root) : ReadPipeline(root);
  }
  const nlohmann::json version = root.value("format_version", nlohmann::json());
  if (JsonInteger(version) != 1) {
    return FormatError(StrCat(kTokenizerJson, ": format_version"), "1",
                       version.is_null() ? "nothing" : JsonGiven(version));
  }
  const nlohmann::json type = root.value("type", nlohmann::json());
  const TokenizerFormRow* row = FindForm(type);
  if (row == nullptr) {
    return FormatError(StrCat(kTokenizerJson, ": type"), TypesWanted(),
                       type.is_null() ? "nothing" : JsonGiven(type));
  }
  if (const auto unknown = UnknownKey(root, row->key)) {
    return FormatError(kTokenizerJson, "no other keys", Quoted(*unknown));
  }
  return row->read(root.value(row->key, nlohmann::json()));
}

}  // namespace tarn
