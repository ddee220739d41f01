// The keys of a tokenizer that was read from a tokenizer.json.
#include <algorithm>
#include <optional>

#include "core/text.h"
#include "text/bpe_tokenizer.h"
#include "text/byte_alphabet.h"
#include "text/keys/keyed_tokenizer.h"
#include "text/keys/splitters.h"
#include "text/pipeline/score_pieces.h"

namespace tarn {
namespace {

[[noreturn]] void RefusePartOf(const std::string& part,
                               const std::string& wanted,
                               const std::string& given) {
  throw FormatError("tokenizer.json: " + part, wanted, given);
}

// A place for each id; those without a token are unused.
void PutTokens(const std::vector<std::string>& tokens,
               const std::vector<AddedToken>& added, KeptTexts& texts,
               VocabularyKeys& keys) {
  for (size_t id = 0; id < tokens.size(); ++id) {
    const bool unused = tokens[id].empty();
    keys.tokens.push_back(
        texts.Keep(unused ? StrCat("[PAD", id, "]") : tokens[id]));
    keys.types.push_back(unused ? TokenType::kUnused : TokenType::kNormal);
  }
  for (const AddedToken& token : added) {
    keys.types[static_cast<size_t>(token.id)] =
        token.special ? TokenType::kControl : TokenType::kUserDefined;
  }
  keys.owner = texts.owner();
}

void PutMerges(const std::vector<BpeMerge>& merges, KeptTexts& texts,
               VocabularyKeys& keys) {
  for (const BpeMerge& merge : merges) {
    keys.merges.push_back(
        texts.Keep(StrCat(keys.tokens[static_cast<size_t>(merge.left)], " ",
                          keys.tokens[static_cast<size_t>(merge.right)])));
  }
}

// At most one token at each end.
void PutEnds(const PipelineDefinition& definition, VocabularyKeys& keys) {
  const auto one = [](const std::vector<int32_t>& ids, const char* end) {
    if (ids.size() > 1) {
      RefusePartOf("post_processor", StrCat("at most one token ", end),
                   StrCat(ids.size()));
    }
    return ids.empty() ? std::nullopt : std::optional<int64_t>(ids[0]);
  };
  keys.bos = one(definition.before, "before a text");
  keys.eos = one(definition.after, "after it");
  keys.add_bos = keys.bos.has_value();
  keys.add_eos = keys.eos.has_value();
}

void PutByteLevel(const std::vector<PreTokenizerStep>& steps,
                  bool ignore_merges, const std::vector<BpeMerge>& merges,
                  KeptTexts& texts, VocabularyKeys& keys) {
  const NamedSplitter* splitter = SplitterOf(steps, ignore_merges);
  if (splitter == nullptr) {
    RefusePartOf("pre_tokenizer",
                 StrCat("one that GGUF has a name for: ", SplitterNames()),
                 "another, or another ignore_merges");
  }
  keys.model = "gpt2";
  keys.pre = splitter->names.front();
  if (!keys.add_bos) keys.add_bos = false;
  PutMerges(merges, texts, keys);
}

// The scores by which merges go as they do by rank: each token's by the place
// of its merges. Throws where these are apart, or where two tokens make a third
// without a merge, as scores would join them.
std::vector<float> ScoresOfMerges(const PipelineDefinition& definition) {
  std::vector<double> scores(definition.tokens.size(), 0.0);
  std::vector<bool> seen(scores.size());
  double next = 0;
  for (size_t rank = 0; rank < definition.merges.size(); ++rank) {
    const int32_t result = definition.merges[rank].result;
    const auto at = static_cast<size_t>(result);
    const bool goes_on =
        rank > 0 && definition.merges[rank - 1].result == result;
    if (seen[at] && !goes_on) {
      RefusePartOf("model.merges", "those of a token one after the other",
                   StrCat("some apart, of ", Quoted(definition.tokens[at])));
    }
    if (!seen[at]) scores[at] = --next;
    seen[at] = true;
  }
  std::vector<std::string> texts = definition.tokens;
  for (const AddedToken& token : definition.added) {
    texts[static_cast<size_t>(token.id)].clear();
  }
  const size_t wanted = MergesOfScores(texts, scores).size();
  if (wanted != definition.merges.size()) {
    RefusePartOf("model.merges",
                 StrCat("all ", wanted,
                        " pairs of tokens that make a token, "
                        "as GGUF has scores in the place of merges"),
                 StrCat(definition.merges.size()));
  }
  return {scores.begin(), scores.end()};
}

constexpr char kSpaceMark[] = "\xE2\x96\x81";  // U+2581

// Spaces as U+2581 and nothing else, with one before a text or without.
bool PutsSpaceBefore(const PipelineDefinition& definition) {
  using Normal = NormalizerStep::Kind;
  const std::vector<NormalizerStep>& steps = definition.normalizers;
  const bool prefix = !steps.empty() && steps[0].kind == Normal::kPrepend;
  const bool fits = steps.size() == (prefix ? 2 : 1) &&
                    (!prefix || steps[0].content == kSpaceMark) &&
                    steps.back().kind == Normal::kReplace &&
                    steps.back().pattern == " " &&
                    steps.back().content == kSpaceMark;
  if (!fits) {
    RefusePartOf("normalizer", "U+2581 for each space, with one before a text",
                 definition.parts[0]);
  }
  // No space is left to cut at.
  const auto cuts = [](const PreTokenizerStep& step) {
    return step.text != " " ||
           step.kind != PreTokenizerStep::Kind::kMergedPrevious;
  };
  if (std::any_of(definition.pre_tokenizers.begin(),
                  definition.pre_tokenizers.end(), cuts)) {
    RefusePartOf("pre_tokenizer", "none, as a text is one piece",
                 definition.parts[1]);
  }
  return prefix;
}

void PutSpaced(const PipelineDefinition& definition, VocabularyKeys& keys) {
  const bool unigram = definition.model == PieceModelKind::kUnigram;
  keys.model = unigram ? "t5" : "llama";
  keys.pre = "default";
  keys.add_space_prefix = PutsSpaceBefore(definition);
  if (unigram) keys.remove_extra_whitespaces = false;
  if (unigram == definition.bpe.byte_fallback) {
    RefusePartOf("model.byte_fallback", unigram ? "false" : "true",
                 unigram ? "true" : "false");
  }
  if (definition.model == PieceModelKind::kBpe) {
    if (definition.bpe.ignore_merges) {
      RefusePartOf("model.ignore_merges", "false", "true");
    }
    keys.scores = ScoresOfMerges(definition);
  } else {
    keys.scores.assign(definition.scores.begin(), definition.scores.end());
    keys.scores.resize(definition.tokens.size());
  }
  if (definition.bpe.unknown >= 0) {
    keys.unknown = definition.bpe.unknown;
    keys.types[static_cast<size_t>(definition.bpe.unknown)] =
        TokenType::kUnknown;
  }
  for (size_t id = 0; id < keys.tokens.size(); ++id) {
    if (!unigram && keys.types[id] == TokenType::kNormal &&
        ByteOfToken(definition.tokens[id]) >= 0) {
      keys.types[id] = TokenType::kByte;
    }
  }
}

}  // namespace

VocabularyKeys KeysOfPipeline(const PipelineDefinition& definition) {
  KeptTexts texts;
  VocabularyKeys keys;
  PutTokens(definition.tokens, definition.added, texts, keys);
  PutEnds(definition, keys);
  if (!definition.bpe.bytes) {
    PutSpaced(definition, keys);
    return keys;
  }
  for (const NormalizerStep& step : definition.normalizers) {
    if (step.kind == NormalizerStep::Kind::kNfc) continue;
    RefusePartOf("normalizer", "null or NFC", definition.parts[0]);
  }
  PutByteLevel(definition.pre_tokenizers, definition.bpe.ignore_merges,
               definition.merges, texts, keys);
  return keys;
}

VocabularyKeys KeysOfBpe(const BpeDefinition& definition) {
  std::vector<bool> added(definition.tokens.size());
  for (const AddedToken& token : definition.added) {
    added[static_cast<size_t>(token.id)] = true;
  }
  std::vector<std::string> tokens = definition.tokens;
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (!added[id]) tokens[id] = BytesToAlphabet(tokens[id]);
  }
  KeptTexts texts;
  VocabularyKeys keys;
  PutTokens(tokens, definition.added, texts, keys);
  std::vector<PreTokenizerStep> steps;
  if (definition.split != nullptr) {
    steps.push_back(
        {PreTokenizerStep::Kind::kScan, definition.split->first_piece_bytes});
  }
  PutByteLevel(steps, definition.ignore_merges, definition.merges, texts, keys);
  return keys;
}

VocabularyKeys KeysOfBytes() {
  BpeDefinition definition;
  for (int byte = 0; byte < 256; ++byte) {
    definition.tokens.push_back(std::string(1, static_cast<char>(byte)));
  }
  return KeysOfBpe(definition);
}

}  // namespace tarn
