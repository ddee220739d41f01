#include "text/tokenizer.h"

#include <utility>

#include "core/text.h"
#include "text/bpe_tokenizer.h"
#include "text/tokenizer_form.h"
#include "text/utf8.h"
#include "text/world_tokenizer.h"

namespace tarn {
namespace {

void CheckToken(int32_t token, int64_t vocab_size) {
  if (token < 0 || token >= vocab_size) {
    throw ArgumentError("token", StrCat("0 to ", vocab_size - 1),
                        StrCat(token));
  }
}

}  // namespace

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
  EncodeOptions options;
  options.offset = offset;
  return form_->Encode(text, options);
}

void Tokenizer::Decode(int32_t token, std::string& out) const {
  CheckToken(token, vocab_size());
  form_->Decode(token, out);
}

void Tokenizer::Decode(int32_t token, DecodeProgress& progress,
                       std::string& out) const {
  CheckToken(token, vocab_size());
  form_->DecodeNext(token, progress, out);
  progress.begun = true;
}

std::string Tokenizer::Decode(const std::vector<int32_t>& tokens) const {
  for (const int32_t token : tokens) CheckToken(token, vocab_size());
  return form_->DecodeAll(tokens);
}

std::string Tokenizer::DecodeText(const std::vector<int32_t>& tokens,
                                  bool skip_special) const {
  for (const int32_t token : tokens) CheckToken(token, vocab_size());
  return form_->DecodeText(tokens, skip_special);
}

int32_t Tokenizer::AddedId(std::string_view content) const {
  return form_->AddedId(content);
}

void TokenizerForm::DecodeNext(int32_t token, DecodeProgress&,
                               std::string& out) const {
  Decode(token, out);
}

std::string TokenizerForm::DecodeAll(std::span<const int32_t> tokens) const {
  std::string out;
  out.reserve(tokens.size());
  for (const int32_t token : tokens) Decode(token, out);
  return out;
}

std::string TokenizerForm::DecodeText(std::span<const int32_t> tokens,
                                      bool) const {
  return ReplaceInvalidUtf8(DecodeAll(tokens));
}

VocabularyKeys TokenizerForm::ToKeys() const {
  throw FormatError("tokenizer",
                    "one that GGUF files hold: byte, BPE, Unigram, World, ids",
                    Name(kind()));
}

std::string Tokenizer::ToJson() const { return form_->ToJson(); }

}  // namespace tarn
