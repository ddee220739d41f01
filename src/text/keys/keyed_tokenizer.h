// Tokenizers from the keys of a GGUF file, and back: one file for each value of
// `tokenizer.ggml.model`. What such keys lack of a tokenizer.json is not made
// up: no normal form is applied to a text, and added tokens are found as they
// are written and take no white space with them. Included by .cc files only.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/files/vocabulary_keys.h"
#include "text/bpe_tokenizer.h"
#include "text/pipeline/definition.h"
#include "text/pipeline/text_index.h"
#include "text/tokenizer.h"
#include "text/world_tokenizer.h"

namespace tarn {

/// One value of `tokenizer.ggml.model`.
struct KeyedModel {
  const char* name;
  /// Throws FormatError that names the key. The keys were checked.
  Tokenizer (*read)(const VocabularyKeys& keys);
};
Tokenizer ReadBytePairs(const VocabularyKeys& keys);     // gpt2
Tokenizer ReadScoredPairs(const VocabularyKeys& keys);   // llama
Tokenizer ReadKeyedUnigram(const VocabularyKeys& keys);  // t5
Tokenizer ReadEscapedBytes(const VocabularyKeys& keys);  // rwkv

/// Throws FormatError about `tokenizer.ggml.KEY`.
[[noreturn]] void RefuseKey(const std::string& key, const std::string& wanted,
                            const std::string& given);
TokenType TypeOfToken(const VocabularyKeys& keys, size_t id);
/// Ids of texts up to the last that has one: the rest is padding.
size_t TokensInUse(const VocabularyKeys& keys);

/// Fills in tokens and added tokens by the types. most_bytes: of a token.
/// keeps_unused: unused ones stand for their texts. Returns ids by the texts of
/// all tokens, unused ones too, which refers to the keys.
TextIndex TakeTokens(const VocabularyKeys& keys, size_t most_bytes,
                     PipelineDefinition& definition, bool keeps_unused = false);
/// The beginning and the end of a text as the definition's post_processor.
void TakeEnds(const VocabularyKeys& keys, bool adds_bos, bool adds_eos,
              PipelineDefinition& definition);
/// The tokenizer, whose errors are about keys.
Tokenizer KeyedPipeline(PipelineDefinition definition);

// The way back. All throw FormatError for what a GGUF file cannot hold.
VocabularyKeys KeysOfPipeline(const PipelineDefinition& definition);
VocabularyKeys KeysOfBpe(const BpeDefinition& definition);
VocabularyKeys KeysOfWorld(const WorldTokenizer& world);
/// Of 256 tokens, one for each byte.
VocabularyKeys KeysOfBytes();

/// Texts that keys refer to.
class KeptTexts {
 public:
  std::string_view Keep(std::string text);
  /// For VocabularyKeys::owner.
  std::shared_ptr<const void> owner() const { return texts_; }

 private:
  std::shared_ptr<std::deque<std::string>> texts_ =
      std::make_shared<std::deque<std::string>>();
};

}  // namespace tarn
