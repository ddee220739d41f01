#include "importers/gguf/text_keys.h"

namespace tarn {
namespace {

constexpr const char* kTemplateKey = "tokenizer.chat_template";
constexpr const char* kTemplateFile = "chat_template.jinja";
constexpr uint64_t kMaxTemplate = uint64_t{1} << 24;

bool HasTemplate(const GgufFile& file) { return file.Has(kTemplateKey); }

std::string TemplateOf(const GgufFile& file) { return file.Text(kTemplateKey); }

}  // namespace

const std::vector<GgufText>& GgufTexts() {
  static const std::vector<GgufText> all = {
      {kTemplateFile, HasTemplate, TemplateOf}};
  return all;
}

void AddTextKeys(const TextFiles& from, const ModelConfig&, GgufKeyList& to) {
  // Tokens are numbers: readers take their count from vocab_size.
  to.Text("tokenizer.ggml.model", "none");
  if (from.Has(kTemplateFile)) {
    to.Text(kTemplateKey, from.Read(kTemplateFile, kMaxTemplate).Take());
  }
}

}  // namespace tarn
