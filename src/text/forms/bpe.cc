// Byte-level BPE (bpe_tokenizer.h).
#include <utility>

#include "text/bpe_json.h"
#include "text/keys/keyed_tokenizer.h"
#include "text/tokenizer_form.h"
#include "text/utf8.h"

namespace tarn {
namespace {

class BpeTokens final : public TokenizerForm {
 public:
  explicit BpeTokens(BpeDefinition definition)
      : tokenizer_(std::move(definition)) {}
  TokenizerKind kind() const override { return TokenizerKind::kBpe; }
  int64_t vocab_size() const override {
    return static_cast<int64_t>(tokenizer_.definition().tokens.size());
  }
  Result<std::vector<int32_t>> Encode(
      std::string_view text, const EncodeOptions& options) const override {
    return tokenizer_.Encode(text, {options.allow_special, options.data},
                             options.offset);
  }
  void Decode(int32_t token, std::string& out) const override {
    out += tokenizer_.Bytes(token);
  }
  std::string DecodeText(std::span<const int32_t> tokens,
                         bool skip_special) const override {
    std::vector<bool> special(static_cast<size_t>(vocab_size()));
    for (const AddedToken& token : tokenizer_.definition().added) {
      special[static_cast<size_t>(token.id)] = token.special;
    }
    std::string out;
    for (const int32_t token : tokens) {
      if (!skip_special || !special[static_cast<size_t>(token)]) {
        Decode(token, out);
      }
    }
    return ReplaceInvalidUtf8(out);
  }
  int32_t AddedId(std::string_view content) const override {
    for (const AddedToken& token : tokenizer_.definition().added) {
      if (token.content == content) return token.id;
    }
    return -1;
  }
  std::string ToJson() const override {
    return BpeToJson(tokenizer_.definition());
  }
  bool Equals(const TokenizerForm& other) const override {
    return tokenizer_.definition() == *other.bpe();
  }
  const BpeDefinition* bpe() const override { return &tokenizer_.definition(); }
  VocabularyKeys ToKeys() const override {
    return KeysOfBpe(tokenizer_.definition());
  }

 private:
  const BpeTokenizer tokenizer_;
};

}  // namespace

TokenizerFormPointer BpeForm(BpeDefinition definition) {
  return std::make_shared<BpeTokens>(std::move(definition));
}

Result<Tokenizer> ReadBpe(const nlohmann::json& root) {
  Result<BpeDefinition> definition = BpeFromJson(root);
  if (!definition.ok()) return definition.error();
  try {
    return Tokenizer::Bpe(std::move(definition).Take());
  } catch (const FormatError& error) {
    return Error(error);
  }
}

}  // namespace tarn
