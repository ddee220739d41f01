// Tokens are the 256 bytes.
#include "text/keys/keyed_tokenizer.h"
#include "text/tokenizer_form.h"

namespace tarn {
namespace {

class ByteTokens final : public TokenizerForm {
 public:
  TokenizerKind kind() const override { return TokenizerKind::kByte; }
  int64_t vocab_size() const override { return 256; }
  Result<std::vector<int32_t>> Encode(std::string_view text,
                                      const EncodeOptions&) const override {
    std::vector<int32_t> tokens;
    tokens.reserve(text.size());
    for (const char c : text) tokens.push_back(static_cast<uint8_t>(c));
    return tokens;
  }
  void Decode(int32_t token, std::string& out) const override {
    out += static_cast<char>(token);
  }
  std::string ToJson() const override {
    return TokenizerJson(kind(), nullptr, {});
  }
  VocabularyKeys ToKeys() const override { return KeysOfBytes(); }
  bool Equals(const TokenizerForm&) const override { return true; }
};

}  // namespace

TokenizerFormPointer ByteForm() {
  static const TokenizerFormPointer bytes = std::make_shared<ByteTokens>();
  return bytes;
}

Result<Tokenizer> ReadByte(const nlohmann::json&) { return Tokenizer::Byte(); }

}  // namespace tarn
