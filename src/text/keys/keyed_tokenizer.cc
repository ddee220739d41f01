#include "text/keys/keyed_tokenizer.h"

#include <algorithm>
#include <utility>

#include "core/text.h"
#include "text/bpe_tokenizer.h"
#include "text/pipeline/pipeline_json.h"
#include "text/tokenizer_form.h"
#include "text/utf8.h"

namespace tarn {
namespace {

constexpr KeyedModel kKeyedModels[] = {
    {"gpt2", ReadBytePairs},
    {"llama", ReadScoredPairs},
    {"t5", ReadKeyedUnigram},
    {"rwkv", ReadEscapedBytes},
};
constexpr char kKeyPrefix[] = "tokenizer.ggml.";

void WantCount(const char* key, size_t count, size_t tokens) {
  if (count != 0 && count != tokens) {
    RefuseKey(key, StrCat("one for each of ", tokens, " tokens"),
              StrCat(count));
  }
}

// What every model needs.
void CheckKeyedVocabulary(const VocabularyKeys& keys) {
  if (keys.tokens.empty() || keys.tokens.size() > kMaxBpeTokens) {
    RefuseKey("tokens", StrCat("1 to ", kMaxBpeTokens, " tokens"),
              StrCat(keys.tokens.size()));
  }
  WantCount("token_type", keys.types.size(), keys.tokens.size());
  WantCount("scores", keys.scores.size(), keys.tokens.size());
  for (size_t id = 0; id < keys.types.size(); ++id) {
    const auto type = static_cast<int32_t>(keys.types[id]);
    if (type < 0 || type > static_cast<int32_t>(TokenType::kByte)) {
      RefuseKey(StrCat("token_type[", id, "]"), "0 to 6", StrCat(type));
    }
  }
  const auto most = static_cast<int64_t>(keys.tokens.size());
  for (const auto& [key, id] : {std::pair{"bos_token_id", keys.bos},
                                std::pair{"eos_token_id", keys.eos},
                                std::pair{"unknown_token_id", keys.unknown}}) {
    if (id && (*id < 0 || *id >= most)) {
      RefuseKey(key, StrCat("0 to ", most - 1), StrCat(*id));
    }
  }
}

// Errors of a tokenizer.json's parts are those of keys here.
FormatError AsOfKeys(const Error& error) {
  constexpr std::pair<std::string_view, std::string_view> kPlaces[] = {
      {"tokenizer.json: model.merges", "tokenizer.ggml.merges"},
      {"tokenizer.json: model.vocab", "tokenizer.ggml.tokens"},
      {"tokenizer.json: added_tokens", "tokenizer.ggml.tokens: added tokens"},
  };
  for (const auto& [theirs, ours] : kPlaces) {
    if (!error.where().starts_with(theirs)) continue;
    return FormatError(std::string(ours) + error.where().substr(theirs.size()),
                       error.wanted(), error.given());
  }
  return FormatError(error.where(), error.wanted(), error.given());
}

bool IsAdded(TokenType type) {
  return type == TokenType::kControl || type == TokenType::kUserDefined ||
         type == TokenType::kUnknown;
}

}  // namespace

void RefuseKey(const std::string& key, const std::string& wanted,
               const std::string& given) {
  throw FormatError(kKeyPrefix + key, wanted, given);
}

TokenType TypeOfToken(const VocabularyKeys& keys, size_t id) {
  if (keys.tokens[id].empty()) return TokenType::kUnused;
  const TokenType type =
      keys.types.empty() ? TokenType::kNormal : keys.types[id];
  // A user's text must not end the model's turn, whatever the file says.
  return type == TokenType::kUserDefined && EndsTurn(keys.tokens[id])
             ? TokenType::kControl
             : type;
}

size_t TokensInUse(const VocabularyKeys& keys) {
  size_t count = keys.tokens.size();
  while (count > 0 && TypeOfToken(keys, count - 1) == TokenType::kUnused) {
    --count;
  }
  if (count == 0) RefuseKey("token_type", "a token in use", "none");
  return count;
}

TextIndex TakeTokens(const VocabularyKeys& keys, size_t most_bytes,
                     PipelineDefinition& definition, bool keeps_unused) {
  const size_t count = TokensInUse(keys);
  TextIndex index(keys.tokens);
  if (const auto [one, other] = index.twice(); one >= 0) {
    RefuseKey("tokens", "each token once",
              StrCat("ids ", one, " and ", other, " with one text"));
  }
  definition.tokens.resize(count);
  for (size_t id = 0; id < count; ++id) {
    const std::string_view text = keys.tokens[id];
    const TokenType type = TypeOfToken(keys, id);
    if (text.size() > most_bytes) {
      RefuseKey(StrCat("tokens[", id, "]"),
                StrCat("at most ", most_bytes, " bytes"), StrCat(text.size()));
    }
    if (!IsUtf8(text)) {
      RefuseKey(StrCat("tokens[", id, "]"), "UTF-8", Quoted(text));
    }
    const bool unused =
        type == TokenType::kUnused || type == TokenType::kUndefined;
    if (unused && !keeps_unused) continue;
    definition.tokens[id] = text;
    if (!IsAdded(type)) continue;
    AddedToken added;
    added.id = static_cast<int32_t>(id);
    added.content = text;
    added.special = type != TokenType::kUserDefined;
    added.in_vocabulary = true;
    definition.added.push_back(std::move(added));
  }
  return index;
}

void TakeEnds(const VocabularyKeys& keys, bool adds_bos, bool adds_eos,
              PipelineDefinition& definition) {
  TextEnds ends;
  if (keys.add_bos.value_or(adds_bos && keys.bos)) {
    if (!keys.bos) RefuseKey("bos_token_id", "an id, as add_bos_token", "none");
    ends.before.push_back(static_cast<int32_t>(*keys.bos));
  }
  if (keys.add_eos.value_or(adds_eos && keys.eos)) {
    if (!keys.eos) RefuseKey("eos_token_id", "an id, as add_eos_token", "none");
    ends.after.push_back(static_cast<int32_t>(*keys.eos));
  }
  for (const auto* list : {&ends.before, &ends.after}) {
    for (const int32_t id : *list) {
      if (static_cast<size_t>(id) >= definition.tokens.size()) {
        RefuseKey("token_type", "tokens in use at the ends of a text",
                  StrCat("an unused one, ", id));
      }
    }
  }
  definition.parts[2] = TemplateOfEnds(ends).dump();
  definition.before = std::move(ends.before);
  definition.after = std::move(ends.after);
}

Tokenizer KeyedPipeline(PipelineDefinition definition) {
  try {
    return Tokenizer::FromForm(PipelineForm(std::move(definition)));
  } catch (const FormatError& error) {
    throw AsOfKeys(error);
  }
}

Result<Tokenizer> Tokenizer::FromKeys(const VocabularyKeys& keys) {
  try {
    std::string known;
    for (const KeyedModel& row : kKeyedModels) {
      known += (known.empty() ? "" : ", ") + std::string(row.name);
      if (keys.model != row.name) continue;
      CheckKeyedVocabulary(keys);
      return row.read(keys);
    }
    RefuseKey("model", known, Quoted(keys.model));
  } catch (const FormatError& error) {
    return Error(error);
  }
}

Result<VocabularyKeys> Tokenizer::ToKeys() const {
  try {
    return form_->ToKeys();
  } catch (const FormatError& error) {
    return Error(error);
  }
}

std::string_view KeptTexts::Keep(std::string text) {
  texts_->push_back(std::move(text));
  return texts_->back();
}

}  // namespace tarn
