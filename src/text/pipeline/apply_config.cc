// BOS and EOS of tokenizer_config.json as the template of tokenizer.json.
#include "core/text.h"
#include "text/bpe_tokenizer.h"
#include "text/pipeline/pipeline_json.h"

namespace tarn {
namespace {

using Json = nlohmann::json;

// The id of a token that the config names: an added one, or the model's.
int32_t NamedToken(const Json& root, const char* key, const std::string& text) {
  const Json added = root.value("added_tokens", Json::array());
  for (const Json& entry : added) {
    if (entry.is_object() && entry.value("content", Json()) == text) {
      return IdOrNone(entry.value("id", Json()));
    }
  }
  const Json& model = root["model"];
  if (model.is_object() && model.contains("vocab")) {
    const Json& vocab = model["vocab"];
    if (vocab.is_object() && vocab.contains(text)) return IdOrNone(vocab[text]);
    for (size_t id = 0; vocab.is_array() && id < vocab.size(); ++id) {
      const Json& entry = vocab[id];
      if (entry.is_array() && !entry.empty() && entry[0] == text) {
        return static_cast<int32_t>(id);
      }
    }
  }
  throw FormatError(StrCat("tokenizer_config.json: ", key),
                    "a token of tokenizer.json",
                    text.empty() ? "nothing" : Quoted(text));
}

// What the flag of one end says: none leaves `now`.
std::vector<int32_t> EndOf(const Json& root, std::optional<bool> add,
                           const char* key, const std::string& text,
                           const std::vector<int32_t>& now) {
  if (!add) return now;
  if (!*add) return {};
  return {NamedToken(root, key, text)};
}

}  // namespace

nlohmann::json TemplateOfEnds(const TextEnds& ends) {
  if (ends.before.empty() && ends.after.empty()) return nullptr;
  Json single = Json::array(), tokens = Json::object();
  const auto append = [&](const std::vector<int32_t>& ids) {
    for (const int32_t id : ids) {
      const std::string name = std::to_string(id);
      single.push_back({{"SpecialToken", {{"id", name}, {"type_id", 0}}}});
      tokens[name] = {{"id", name},
                      {"ids", Json::array({id})},
                      {"tokens", Json::array({name})}};
    }
  };
  append(ends.before);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  append(ends.after);
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"pair", single},
          {"special_tokens", tokens}};
}

void ApplyTokenizerConfig(const TokenizerConfig& config, Json& root) {
  if (!config.add_bos && !config.add_eos) return;
  const JsonNode post = JsonNode{&root, ""}["post_processor"];
  const TextEnds now = ReadPostProcessor(post, kMaxBpeTokens);
  TextEnds wanted;
  wanted.before =
      EndOf(root, config.add_bos, "bos_token", config.bos, now.before);
  wanted.after =
      EndOf(root, config.add_eos, "eos_token", config.eos, now.after);
  if (wanted.before == now.before && wanted.after == now.after) return;
  root["post_processor"] = TemplateOfEnds(wanted);
}

}  // namespace tarn
