// Any other tokenizer.json of Hugging Face's form (pipeline/).
#include <utility>

#include "text/keys/keyed_tokenizer.h"
#include "text/pipeline/pipeline_json.h"
#include "text/pipeline/pipeline_tokenizer.h"
#include "text/tokenizer_form.h"

namespace tarn {
namespace {

class PipelineTokens final : public TokenizerForm {
 public:
  explicit PipelineTokens(PipelineDefinition definition)
      : tokenizer_(std::move(definition)) {}
  TokenizerKind kind() const override {
    return tokenizer_.definition().model == PieceModelKind::kUnigram
               ? TokenizerKind::kUnigram
               : TokenizerKind::kBpe;
  }
  int64_t vocab_size() const override {
    return static_cast<int64_t>(tokenizer_.definition().tokens.size());
  }
  Result<std::vector<int32_t>> Encode(
      std::string_view text, const EncodeOptions& options) const override {
    return tokenizer_.Encode(text, options);
  }
  void Decode(int32_t token, std::string& out) const override {
    tokenizer_.Decode(token, out);
  }
  void DecodeNext(int32_t token, DecodeProgress& progress,
                  std::string& out) const override {
    tokenizer_.Decode(token, progress, out);
  }
  std::string DecodeAll(std::span<const int32_t> tokens) const override {
    return tokenizer_.Decode(tokens, DecodedBytes::kAsTheyAre, false);
  }
  std::string DecodeText(std::span<const int32_t> tokens,
                         bool skip_special) const override {
    return tokenizer_.Decode(tokens, DecodedBytes::kAsText, skip_special);
  }
  int32_t AddedId(std::string_view content) const override {
    return tokenizer_.AddedId(content);
  }
  std::string ToJson() const override {
    return PipelineToJson(tokenizer_.definition());
  }
  bool Equals(const TokenizerForm& other) const override {
    return ToJson() == other.ToJson();
  }
  VocabularyKeys ToKeys() const override {
    return KeysOfPipeline(tokenizer_.definition());
  }

 private:
  const PipelineTokenizer tokenizer_;
};

}  // namespace

TokenizerFormPointer PipelineForm(PipelineDefinition definition) {
  return std::make_shared<PipelineTokens>(std::move(definition));
}

Result<Tokenizer> ReadPipeline(const nlohmann::json& root) {
  Result<PipelineDefinition> definition = PipelineFromJson(root);
  if (!definition.ok()) return definition.error();
  try {
    return Tokenizer::FromForm(PipelineForm(std::move(definition).Take()));
  } catch (const FormatError& error) {
    return Error(error);
  }
}

}  // namespace tarn
