// RWKV's vocabulary (world_tokenizer.h).
#include <utility>

#include "core/json.h"
#include "text/keys/keyed_tokenizer.h"
#include "text/tokenizer_form.h"
#include "text/world_tokenizer.h"

namespace tarn {
namespace {

class WorldTokens final : public TokenizerForm {
 public:
  explicit WorldTokens(WorldTokenizer vocabulary)
      : vocabulary_(std::move(vocabulary)) {}
  TokenizerKind kind() const override { return TokenizerKind::kWorld; }
  int64_t vocab_size() const override { return vocabulary_.vocab_size(); }
  Result<std::vector<int32_t>> Encode(std::string_view text,
                                      const EncodeOptions&) const override {
    return vocabulary_.Encode(text);
  }
  void Decode(int32_t token, std::string& out) const override {
    out += vocabulary_.Bytes(token);
  }
  std::string ToJson() const override {
    return TokenizerJson(kind(), "vocabulary", vocabulary_.text());
  }
  VocabularyKeys ToKeys() const override { return KeysOfWorld(vocabulary_); }
  bool Equals(const TokenizerForm& other) const override {
    return vocabulary_.text() ==
           static_cast<const WorldTokens&>(other).vocabulary_.text();
  }

 private:
  const WorldTokenizer vocabulary_;
};

}  // namespace

TokenizerFormPointer WorldForm(WorldTokenizer vocabulary) {
  return std::make_shared<WorldTokens>(std::move(vocabulary));
}

Result<Tokenizer> ReadWorld(const nlohmann::json& vocabulary) {
  if (!vocabulary.is_string()) {
    return FormatError(
        StrCat(kTokenizerJson, ": vocabulary"), "the text of a vocabulary file",
        vocabulary.is_null() ? "nothing" : JsonGiven(vocabulary));
  }
  Result<WorldTokenizer> world =
      WorldTokenizer::FromText(vocabulary.get_ref<const std::string&>());
  if (!world.ok()) {
    const Error& error = world.error();
    return FormatError(StrCat(kTokenizerJson, ": ", error.where()),
                       error.wanted(), error.given());
  }
  return Tokenizer::World(std::move(world).Take());
}

}  // namespace tarn
