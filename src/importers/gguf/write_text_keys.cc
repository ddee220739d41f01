// The keys of a model's texts.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/json.h"
#include "core/text.h"
#include "importers/generation_config.h"
#include "importers/gguf/text_keys.h"

namespace tarn {
namespace {

constexpr uint64_t kMostConfigBytes = uint64_t{64} << 20;

// tokenizer_config.json, or an empty object.
nlohmann::json ReadTextConfig(const TextFiles& from) {
  constexpr char kName[] = "tokenizer_config.json";
  if (!from.Has(kName)) return nlohmann::json::object();
  const std::string text = from.Read(kName, kMostConfigBytes).Take();
  nlohmann::json root =
      ParseStrictJson(text, from.Where(kName), kMostConfigBytes).Take();
  if (!root.is_object()) {
    throw FormatError(from.Where(kName), "an object", JsonGiven(root));
  }
  return root;
}

// A text, or that of an object that holds it, or of a list's default; empty:
// none.
std::string TextMemberOf(const nlohmann::json& root, const char* key) {
  nlohmann::json value = root.value(key, nlohmann::json());
  if (value.is_object()) value = value.value("content", nlohmann::json());
  if (value.is_array()) {
    for (const nlohmann::json& entry : value) {
      if (!entry.is_object() || entry.value("name", "") != "default") continue;
      return TextMemberOf(entry, "template");
    }
  }
  return value.is_string() ? value.get<std::string>() : "";
}

class Ids {
 public:
  explicit Ids(const VocabularyKeys& keys) : keys_(keys) {}
  /// The token with a text.
  std::optional<int64_t> Of(const std::string& text) const {
    if (text.empty()) return std::nullopt;
    const auto found =
        std::find(keys_.tokens.begin(), keys_.tokens.end(), text);
    if (found == keys_.tokens.end()) return std::nullopt;
    return found - keys_.tokens.begin();
  }
  bool EndsTurnByText(int64_t id) const {
    const auto at = static_cast<size_t>(id);
    return at < keys_.tokens.size() && EndsTurn(keys_.tokens[at]);
  }

 private:
  const VocabularyKeys& keys_;
};

// A token that models do not write. llama.cpp ends a text at a token that it
// supposes where a file names none: 11, which may be a comma.
int64_t SilentToken(const VocabularyKeys& keys, const ModelConfig& config) {
  const auto listed = static_cast<int64_t>(keys.tokens.size());
  if (config.vocab_size > listed) return listed;  // padding
  for (size_t id = 0; id < keys.types.size(); ++id) {
    if (keys.types[id] != TokenType::kNormal &&
        keys.types[id] != TokenType::kUserDefined &&
        keys.types[id] != TokenType::kByte) {
      return static_cast<int64_t>(id);
    }
  }
  constexpr const char* kZeroByte[] = {"\xC4\x80", "<0x00>", "\\x00"};
  const Ids ids(keys);
  for (const char* text : kZeroByte) {
    if (const auto id = ids.Of(text)) return *id;
  }
  return listed - 1;
}

// Tokens that end a text: those of generation_config.json, the first one that
// of tokenizer_config.json where it is among them.
void AddStopKeys(const VocabularyKeys& keys, const ModelPath& from,
                 const ModelConfig& config, std::optional<int64_t> eos,
                 GgufKeyList& to) {
  const PublishedGeneration generation = ReadGenerationConfig(from).Take();
  std::vector<int64_t> stops(generation.stop_tokens.begin(),
                             generation.stop_tokens.end());
  if (eos) {
    std::erase(stops, *eos);
    stops.insert(stops.begin(), *eos);
  }
  std::erase_if(stops, [&](int64_t id) { return id >= config.vocab_size; });
  if (stops.empty()) stops.push_back(SilentToken(keys, config));
  to.U32("tokenizer.ggml.eos_token_id", stops[0]);
  // llama.cpp finds others by their texts; it has two more keys.
  const Ids ids(keys);
  const char* more[] = {"tokenizer.ggml.eot_token_id",
                        "tokenizer.ggml.eom_token_id"};
  size_t used = 0;
  for (size_t i = 1; i < stops.size(); ++i) {
    if (ids.EndsTurnByText(stops[i])) continue;
    if (used == std::size(more)) {
      throw FormatError(from.Where("generation_config.json: eos_token_id"),
                        "at most three tokens, and those that llama.cpp knows",
                        StrCat(stops.size()));
    }
    to.U32(more[used++], stops[i]);
  }
}

void AddVocabularyKeys(const VocabularyKeys& keys, const ModelConfig& config,
                       GgufKeyList& to) {
  std::vector<std::string> tokens(keys.tokens.begin(), keys.tokens.end());
  std::vector<int64_t> types(tokens.size(),
                             static_cast<int64_t>(TokenType::kNormal));
  for (size_t id = 0; id < keys.types.size(); ++id) {
    types[id] = static_cast<int64_t>(keys.types[id]);
  }
  std::vector<float> scores = keys.scores;
  while (static_cast<int64_t>(tokens.size()) < config.vocab_size) {
    tokens.push_back(StrCat("[PAD", tokens.size(), "]"));
    types.push_back(static_cast<int64_t>(TokenType::kUnused));
    if (!scores.empty()) scores.push_back(-1e4f);
  }
  to.Text("tokenizer.ggml.model", keys.model);
  if (!keys.pre.empty()) to.Text("tokenizer.ggml.pre", keys.pre);
  to.Texts("tokenizer.ggml.tokens", tokens);
  to.I32s("tokenizer.ggml.token_type", types);
  if (!scores.empty()) to.F32s("tokenizer.ggml.scores", scores);
  if (keys.model == "gpt2") {
    const std::vector<std::string> merges(keys.merges.begin(),
                                          keys.merges.end());
    to.Texts("tokenizer.ggml.merges", merges);
  }
  const auto flag = [&](const char* key, std::optional<bool> value) {
    if (value) to.Bool(key, *value);
  };
  flag("tokenizer.ggml.add_bos_token", keys.add_bos);
  flag("tokenizer.ggml.add_eos_token", keys.add_eos);
  flag("tokenizer.ggml.add_space_prefix", keys.add_space_prefix);
  flag("tokenizer.ggml.remove_extra_whitespaces",
       keys.remove_extra_whitespaces);
}

}  // namespace

void AddTextKeys(const VocabularyKeys& vocabulary, const ModelPath& from,
                 const ModelConfig& config, GgufKeyList& to) {
  const nlohmann::json named = ReadTextConfig(from);
  std::string chat = TextMemberOf(named, "chat_template");
  constexpr char kTemplateFile[] = "chat_template.jinja";
  if (from.Has(kTemplateFile)) {
    chat = from.Read(kTemplateFile, kMostConfigBytes).Take();
  }
  if (!chat.empty()) to.Text("tokenizer.chat_template", chat);
  if (vocabulary.model == "none") {
    to.Text("tokenizer.ggml.model", "none");
    return;
  }
  AddVocabularyKeys(vocabulary, config, to);
  const Ids ids(vocabulary);
  const auto either = [&](std::optional<int64_t> known, const char* name) {
    return known ? known : ids.Of(TextMemberOf(named, name));
  };
  const auto put = [&](const char* key, std::optional<int64_t> id) {
    if (id) to.U32(key, *id);
  };
  put("tokenizer.ggml.bos_token_id", either(vocabulary.bos, "bos_token"));
  put("tokenizer.ggml.unknown_token_id",
      either(vocabulary.unknown, "unk_token"));
  put("tokenizer.ggml.padding_token_id",
      ids.Of(TextMemberOf(named, "pad_token")));
  AddStopKeys(vocabulary, from, config, either(vocabulary.eos, "eos_token"),
              to);
}

}  // namespace tarn
