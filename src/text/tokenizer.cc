#include "text/tokenizer.h"

#include <utility>

#include "core/text.h"
#include "text/bpe_tokenizer.h"
#include "text/tokenizer_form.h"
#include "text/world_tokenizer.h"

namespace tarn {

Tokenizer::Tokenizer() : form_(ByteForm()) {}

Tokenizer Tokenizer::Byte() { return Tokenizer(ByteForm()); }

Tokenizer Tokenizer::Char(std::vector<uint32_t> code_points) {
  return Tokenizer(CharForm(std::move(code_points)));
}

Tokenizer Tokenizer::Ids(int64_t vocab_size) {
  return Tokenizer(IdsForm(vocab_size));
}

Tokenizer Tokenizer::Bpe(BpeDefinition definition) {
  return Tokenizer(BpeForm(std::move(definition)));
}

Tokenizer Tokenizer::World(WorldTokenizer vocabulary) {
  return Tokenizer(WorldForm(std::move(vocabulary)));
}

bool Tokenizer::operator==(const Tokenizer& other) const {
  return form_ == other.form_ ||
         (kind() == other.kind() && form_->Equals(*other.form_));
}

TokenizerKind Tokenizer::kind() const { return form_->kind(); }

int64_t Tokenizer::vocab_size() const { return form_->vocab_size(); }

const BpeDefinition* Tokenizer::bpe() const { return form_->bpe(); }

Result<std::vector<int32_t>> Tokenizer::Encode(
    std::string_view text, const EncodeOptions& options) const {
  return form_->Encode(text, options);
}

Result<std::vector<int32_t>> Tokenizer::Encode(std::string_view text,
                                               uint64_t offset) const {
  return form_->Encode(text, {.allow_special = false, .offset = offset});
}

void Tokenizer::Decode(int32_t token, std::string& out) const {
  if (token < 0 || token >= vocab_size()) {
    throw ArgumentError("token", StrCat("0 to ", vocab_size() - 1),
                        StrCat(token));
  }
  form_->Decode(token, out);
}

std::string Tokenizer::Decode(const std::vector<int32_t>& tokens) const {
  std::string out;
  out.reserve(tokens.size());
  for (int32_t token : tokens) Decode(token, out);
  return out;
}

std::string Tokenizer::ToJson() const { return form_->ToJson(); }

}  // namespace tarn
