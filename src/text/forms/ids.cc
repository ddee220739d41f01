// Tokens are written as their numbers (id_text.h).
#include <optional>

#include "core/json.h"
#include "text/id_text.h"
#include "text/tokenizer_form.h"

namespace tarn {
namespace {

constexpr int64_t kMaxIds = int64_t{1} << 24;  // config.json's limit

class IdTokens final : public TokenizerForm {
 public:
  explicit IdTokens(int64_t count) : count_(count) {}
  TokenizerKind kind() const override { return TokenizerKind::kIds; }
  int64_t vocab_size() const override { return count_; }
  Result<std::vector<int32_t>> Encode(
      std::string_view text, const EncodeOptions& options) const override {
    return IdsFromText(text, count_, options.offset);
  }
  void Decode(int32_t token, std::string& out) const override {
    AppendId(token, out);
  }
  std::string ToJson() const override {
    return TokenizerJson(kind(), "vocab_size", count_);
  }
  VocabularyKeys ToKeys() const override {
    VocabularyKeys keys;
    keys.model = "none";
    return keys;
  }
  bool Equals(const TokenizerForm& other) const override {
    return count_ == other.vocab_size();
  }

 private:
  const int64_t count_;
};

}  // namespace

TokenizerFormPointer IdsForm(int64_t vocab_size) {
  if (vocab_size < 1 || vocab_size > kMaxIds) {
    throw ArgumentError("vocab_size", StrCat("1 to ", kMaxIds),
                        StrCat(vocab_size));
  }
  return std::make_shared<IdTokens>(vocab_size);
}

Result<Tokenizer> ReadIds(const nlohmann::json& vocab_size) {
  const std::optional<int64_t> count = JsonInteger(vocab_size);
  if (!count || *count < 1 || *count > kMaxIds) {
    return FormatError(
        StrCat(kTokenizerJson, ": vocab_size"), StrCat("1 to ", kMaxIds),
        vocab_size.is_null() ? "nothing" : JsonGiven(vocab_size));
  }
  return Tokenizer::Ids(*count);
}

}  // namespace tarn
