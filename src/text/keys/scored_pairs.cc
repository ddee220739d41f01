// `llama`: SentencePiece's BPE. Tokens are texts with U+2581 for spaces; what
// no token stands for is written by the bytes' tokens.
#include <cmath>

#include "core/text.h"
#include "text/keys/keyed_tokenizer.h"
#include "text/pipeline/pipeline_json.h"
#include "text/pipeline/unigram.h"

namespace tarn {
namespace {

using Json = nlohmann::json;

constexpr char kBar[] = "\xE2\x96\x81";  // U+2581

Json ReplaceStep(const char* pattern, const char* content) {
  return {{"type", "Replace"},
          {"pattern", {{"String", pattern}}},
          {"content", content}};
}

// The id of the token for what cannot be written, or -1.
int32_t UnknownOf(const VocabularyKeys& keys, size_t count) {
  if (keys.unknown && *keys.unknown < static_cast<int64_t>(count)) {
    return static_cast<int32_t>(*keys.unknown);
  }
  for (size_t id = 0; id < count; ++id) {
    if (TypeOfToken(keys, id) == TokenType::kUnknown) {
      return static_cast<int32_t>(id);
    }
  }
  return -1;
}

void TakeScores(const VocabularyKeys& keys, PipelineDefinition& definition) {
  if (keys.scores.empty()) RefuseKey("scores", "one for each token", "none");
  for (size_t id = 0; id < definition.tokens.size(); ++id) {
    if (!std::isfinite(keys.scores[id])) {
      RefuseKey(StrCat("scores[", id, "]"), "a finite number",
                StrCat(keys.scores[id]));
    }
    definition.scores.push_back(static_cast<double>(keys.scores[id]));
  }
}

// Spaces are U+2581 on the way to tokens, with one put before a text, and
// spaces again on the way back.
void TakeSpaces(bool prefix, bool bytes, PipelineDefinition& definition) {
  Json before = Json::array(), after = Json::array();
  if (prefix) before.push_back({{"type", "Prepend"}, {"prepend", kBar}});
  before.push_back(ReplaceStep(" ", kBar));
  after.push_back(ReplaceStep(kBar, " "));
  if (bytes) after.push_back({{"type", "ByteFallback"}});
  after.push_back({{"type", "Fuse"}});
  if (prefix) {
    after.push_back(
        {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  const Json normalizer = {{"type", "Sequence"}, {"normalizers", before}};
  const Json decoder = {{"type", "Sequence"}, {"decoders", after}};
  definition.normalizers = ReadNormalizers({&normalizer, ""});
  definition.decoders = ReadDecoders({&decoder, ""});
  definition.parts[0] = normalizer.dump();
  definition.parts[1] = "null";
  definition.parts[3] = decoder.dump();
}

}  // namespace

Tokenizer ReadScoredPairs(const VocabularyKeys& keys) {
  PipelineDefinition definition;
  TakeTokens(keys, kMaxUnigramBytes, definition);
  TakeEnds(keys, /*adds_bos=*/true, /*adds_eos=*/false, definition);
  TakeScores(keys, definition);
  TakeSpaces(keys.add_space_prefix.value_or(true), /*bytes=*/true, definition);
  definition.model = PieceModelKind::kScores;
  definition.bpe.byte_fallback = true;
  definition.bpe.fuse_unknown = true;
  definition.bpe.unknown = UnknownOf(keys, definition.tokens.size());
  Json unknown = nullptr;
  if (definition.bpe.unknown >= 0) {
    unknown = definition.tokens[static_cast<size_t>(definition.bpe.unknown)];
  }
  definition.parts[4] = Json{{"type", "BPE"},         {"dropout", nullptr},
                             {"unk_token", unknown},  {"fuse_unk", true},
                             {"byte_fallback", true}, {"ignore_merges", false}}
                            .dump();
  return KeyedPipeline(std::move(definition));
}

// `t5`: Unigram, without SentencePiece's compiled normaliser.
Tokenizer ReadKeyedUnigram(const VocabularyKeys& keys) {
  if (keys.charsmap) {
    RefuseKey("precompiled_charsmap",
              "none: compiled normalisers cannot be run", "one");
  }
  if (keys.remove_extra_whitespaces.value_or(false)) {
    RefuseKey("remove_extra_whitespaces", "false", "true");
  }
  PipelineDefinition definition;
  TakeTokens(keys, kMaxUnigramBytes, definition, /*keeps_unused=*/true);
  TakeEnds(keys, /*adds_bos=*/false, /*adds_eos=*/true, definition);
  TakeScores(keys, definition);
  TakeSpaces(keys.add_space_prefix.value_or(false), /*bytes=*/false,
             definition);
  definition.model = PieceModelKind::kUnigram;
  definition.bpe.unknown = UnknownOf(keys, definition.tokens.size());
  Json unknown = nullptr;
  if (definition.bpe.unknown >= 0) unknown = definition.bpe.unknown;
  definition.parts[4] =
      Json{{"type", "Unigram"}, {"unk_id", unknown}, {"byte_fallback", false}}
          .dump();
  return KeyedPipeline(std::move(definition));
}

}  // namespace tarn
