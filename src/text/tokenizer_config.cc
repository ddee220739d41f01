#include "text/tokenizer_config.h"

#include "core/json.h"
#include "core/text.h"

namespace tarn {
namespace {

constexpr uint64_t kMaxConfigBytes = 64 << 20;
constexpr char kConfigFile[] = "tokenizer_config.json";

[[noreturn]] void RefuseFlag(const char* key, const char* wanted,
                             const nlohmann::json& value) {
  throw FormatError(StrCat(kConfigFile, ": ", key), wanted, JsonGiven(value));
}

std::optional<bool> ReadFlag(const nlohmann::json& root, const char* key) {
  const nlohmann::json value = root.value(key, nlohmann::json());
  if (value.is_null()) return std::nullopt;
  if (!value.is_boolean()) RefuseFlag(key, "true or false", value);
  return value.get<bool>();
}

// A text, or an object that holds it as "content".
std::string ReadTokenText(const nlohmann::json& root, const char* key) {
  nlohmann::json value = root.value(key, nlohmann::json());
  if (value.is_object()) value = value.value("content", nlohmann::json());
  if (value.is_null()) return "";
  if (!value.is_string()) RefuseFlag(key, "the text of a token", value);
  return value.get<std::string>();
}

}  // namespace

Result<TokenizerConfig> ReadTokenizerConfig(const TextFiles& files) {
  TokenizerConfig config;
  if (!files.Has(kConfigFile)) return config;
  Result<std::string> text = files.Read(kConfigFile, kMaxConfigBytes);
  if (!text.ok()) return text.error();
  Result<nlohmann::json> root =
      ParseStrictJson(text.value(), kConfigFile, kMaxConfigBytes);
  if (!root.ok()) return root.error();
  if (!root.value().is_object()) {
    return FormatError(kConfigFile, "an object", JsonGiven(root.value()));
  }
  try {
    config.add_bos = ReadFlag(root.value(), "add_bos_token");
    config.add_eos = ReadFlag(root.value(), "add_eos_token");
    config.bos = ReadTokenText(root.value(), "bos_token");
    config.eos = ReadTokenText(root.value(), "eos_token");
  } catch (const FormatError& fault) {
    return Error(fault);
  }
  return config;
}

}  // namespace tarn
