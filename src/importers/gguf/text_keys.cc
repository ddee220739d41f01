#include "importers/gguf/text_keys.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/text.h"
#include "importers/generation_config.h"

namespace tarn {
namespace {

constexpr uint64_t kMostGgufTokens = uint64_t{1} << 20;
constexpr uint64_t kMostGgufMerges = uint64_t{1} << 22;
constexpr char kModelKey[] = "tokenizer.ggml.model";
constexpr char kTokensKey[] = "tokenizer.ggml.tokens";
constexpr char kTemplateKey[] = "tokenizer.chat_template";

std::optional<int64_t> IdOfKey(const GgufFile& file, const char* key) {
  if (!file.Has(key)) return std::nullopt;
  return file.Integer(key, 0, INT32_MAX);
}

std::optional<bool> FlagOfKey(const GgufFile& file, const char* key) {
  if (!file.Has(key)) return std::nullopt;
  return file.Flag(key);
}

std::vector<std::string_view> ViewsOfKey(const GgufFile& file, const char* key,
                                         uint64_t most) {
  if (!file.Has(key)) return {};
  const GgufStrings& strings = file.Strings(key, most);
  std::vector<std::string_view> views(strings.size());
  for (size_t i = 0; i < views.size(); ++i) views[i] = strings[i];
  return views;
}

std::vector<int64_t> TypesOfKeys(const GgufFile& file) {
  constexpr char kKey[] = "tokenizer.ggml.token_type";
  if (!file.Has(kKey)) return {};
  return file.Integers(kKey, 0, 6, kMostGgufTokens);
}

// Names that tokenizer_config.json gives to the ids of keys.
struct NamedId {
  const char *name, *key;
};
constexpr NamedId kNamedIds[] = {
    {"bos_token", "tokenizer.ggml.bos_token_id"},
    {"eos_token", "tokenizer.ggml.eos_token_id"},
    {"unk_token", "tokenizer.ggml.unknown_token_id"},
    {"sep_token", "tokenizer.ggml.seperator_token_id"},  // so written there
    {"pad_token", "tokenizer.ggml.padding_token_id"},
    {"mask_token", "tokenizer.ggml.mask_token_id"},
};

// JSON, or an error about the key whose text is not UTF-8.
std::string DumpKeys(const GgufFile& file, const nlohmann::ordered_json& root) {
  try {
    return root.dump(2) + "\n";
  } catch (const nlohmann::json::exception&) {
    throw FormatError(file.Where("tokenizer"), "texts in UTF-8", "other bytes");
  }
}

bool HasConfigKeys(const GgufFile& file) {
  return HasVocabularyKeys(file) || file.Has(kTemplateKey);
}

std::string ConfigOfKeys(const GgufFile& file) {
  nlohmann::ordered_json root = nlohmann::ordered_json::object();
  if (HasVocabularyKeys(file)) {
    for (const char* name : {"add_bos_token", "add_eos_token"}) {
      const auto flag =
          FlagOfKey(file, StrCat("tokenizer.ggml.", name).c_str());
      if (flag) root[name] = *flag;
    }
    const GgufStrings& tokens = file.Strings(kTokensKey, kMostGgufTokens);
    for (const auto& [name, key] : kNamedIds) {
      const auto id = IdOfKey(file, key);
      if (id && static_cast<uint64_t>(*id) < tokens.size()) {
        root[name] = tokens[static_cast<size_t>(*id)];
      }
    }
  }
  if (file.Has(kTemplateKey)) root["chat_template"] = file.Text(kTemplateKey);
  return DumpKeys(file, root);
}

// Two texts that models write within a turn, where others are there, as
// llama-vocab.cpp has it.
bool StaysWithinTurn(std::string_view text,
                     const std::vector<std::string_view>& ends) {
  const auto has = [&](std::string_view other) {
    return std::find(ends.begin(), ends.end(), other) != ends.end();
  };
  if (text == "</s>") return has("<|tool_response>");
  const bool calls = has("<|call|>") || has("<|calls|>");
  return text == "<|end|>" && calls && (has("<|return|>") || has("<|flush|>"));
}

std::vector<int64_t> StopIdsOf(const GgufFile& file) {
  std::vector<int64_t> ids;
  for (const char* name : {"eos", "eot", "eom"}) {
    const auto id =
        IdOfKey(file, StrCat("tokenizer.ggml.", name, "_token_id").c_str());
    if (id) ids.push_back(*id);
  }
  // An ordinary token of such a text, as "</s>" of HTML, is no end.
  const GgufStrings& tokens = file.Strings(kTokensKey, kMostGgufTokens);
  const std::vector<int64_t> types = TypesOfKeys(file);
  std::vector<std::string_view> ends;
  std::vector<int64_t> found;
  for (size_t id = 0; id < std::min(tokens.size(), types.size()); ++id) {
    const auto type = static_cast<TokenType>(types[id]);
    if ((type != TokenType::kControl && type != TokenType::kUserDefined) ||
        !EndsTurn(tokens[id])) {
      continue;
    }
    ends.push_back(tokens[id]);
    found.push_back(static_cast<int64_t>(id));
  }
  for (size_t i = 0; i < ends.size(); ++i) {
    if (!StaysWithinTurn(ends[i], ends)) ids.push_back(found[i]);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

std::string GenerationOfKeys(const GgufFile& file) {
  nlohmann::ordered_json root = nlohmann::ordered_json::object();
  const std::vector<int64_t> ids = StopIdsOf(file);
  if (!ids.empty()) root["eos_token_id"] = ids;
  return root.dump(2) + "\n";
}

}  // namespace

const std::vector<GgufText>& GgufTexts() {
  static const std::vector<GgufText> all = {
      {"tokenizer_config.json", HasConfigKeys, ConfigOfKeys},
      {"generation_config.json", HasVocabularyKeys, GenerationOfKeys}};
  return all;
}

bool HasVocabularyKeys(const GgufFile& file) {
  if (!file.Has(kModelKey)) return false;
  if (file.TypeOf(kModelKey) != GgufType::kString)
    return true;  // refused later
  const std::string& model = file.Text(kModelKey);
  return model != "none" && model != "no_vocab";
}

VocabularyKeys VocabularyOf(const GgufFile& file) {
  VocabularyKeys keys;
  keys.model = file.Text(kModelKey);
  if (file.Has("tokenizer.ggml.pre"))
    keys.pre = file.Text("tokenizer.ggml.pre");
  if (!file.Has(kTokensKey)) {
    throw FormatError(file.Where(kTokensKey), "the tokens' texts",
                      "no such key");
  }
  keys.tokens = ViewsOfKey(file, kTokensKey, kMostGgufTokens);
  for (const int64_t type : TypesOfKeys(file)) {
    keys.types.push_back(static_cast<TokenType>(type));
  }
  if (file.Has("tokenizer.ggml.scores")) {
    const std::vector<double> scores =
        file.Reals("tokenizer.ggml.scores", kMostGgufTokens);
    keys.scores.assign(scores.begin(), scores.end());
  }
  keys.merges = ViewsOfKey(file, "tokenizer.ggml.merges", kMostGgufMerges);
  keys.bos = IdOfKey(file, "tokenizer.ggml.bos_token_id");
  keys.eos = IdOfKey(file, "tokenizer.ggml.eos_token_id");
  keys.unknown = IdOfKey(file, "tokenizer.ggml.unknown_token_id");
  keys.add_bos = FlagOfKey(file, "tokenizer.ggml.add_bos_token");
  keys.add_eos = FlagOfKey(file, "tokenizer.ggml.add_eos_token");
  keys.add_space_prefix = FlagOfKey(file, "tokenizer.ggml.add_space_prefix");
  keys.remove_extra_whitespaces =
      FlagOfKey(file, "tokenizer.ggml.remove_extra_whitespaces");
  constexpr char kCharsmap[] = "tokenizer.ggml.precompiled_charsmap";
  keys.charsmap = file.Has(kCharsmap) && file.CountOf(kCharsmap) > 0;
  return keys;
}

}  // namespace tarn
