// `gpt2`: byte-level BPE. Tokens are in the alphabet of bytes, added ones as
// they are; merges are "left right".
#include "core/text.h"
#include "text/bpe_tokenizer.h"
#include "text/keys/keyed_tokenizer.h"
#include "text/keys/splitters.h"
#include "text/pipeline/pipeline_json.h"

namespace tarn {
namespace {

// Longer than any token in use, and steps of no loop.
constexpr size_t kMostByteLevelBytes = 64 << 10;

const NamedSplitter& SplitterOfKeys(const VocabularyKeys& keys) {
  const NamedSplitter* splitter = FindSplitter(keys.pre);
  if (splitter == nullptr) {
    RefuseKey("pre", StrCat("a splitter that tarn has: ", SplitterNames()),
              keys.pre.empty() ? "none" : Quoted(keys.pre));
  }
  return *splitter;
}

std::vector<BpeMerge> TakeMerges(const VocabularyKeys& keys,
                                 const TextIndex& index,
                                 const std::vector<std::string>& tokens) {
  // Padding at the end has an id, but no token.
  const auto find = [&](std::string_view text) {
    const int32_t id = index.Find(text);
    const auto at = static_cast<size_t>(id);
    return id >= 0 && at < tokens.size() && !tokens[at].empty() ? id : -1;
  };
  std::vector<BpeMerge> merges;
  merges.reserve(keys.merges.size());
  std::string result;
  for (size_t rank = 0; rank < keys.merges.size(); ++rank) {
    const std::string_view text = keys.merges[rank];
    const auto refuse = [&](const char* wanted) {
      RefuseKey(StrCat("merges[", rank, "]"), wanted, Quoted(text));
    };
    const size_t space = text.find(' ');
    if (space == text.npos || text.find(' ', space + 1) != text.npos) {
      refuse("two tokens with one space between");
    }
    const std::string_view left = text.substr(0, space);
    const std::string_view right = text.substr(space + 1);
    result.assign(left).append(right);
    const BpeMerge merge = {find(left), find(right), find(result)};
    if (merge.left < 0 || merge.right < 0 || merge.result < 0) {
      refuse("two tokens that make a token");
    }
    merges.push_back(merge);
  }
  return merges;
}

}  // namespace

Tokenizer ReadBytePairs(const VocabularyKeys& keys) {
  const NamedSplitter& splitter = SplitterOfKeys(keys);
  PipelineDefinition definition;
  const TextIndex index = TakeTokens(keys, kMostByteLevelBytes, definition);
  TakeEnds(keys, splitter.adds_bos, /*adds_eos=*/false, definition);
  const nlohmann::json decoder = {{"type", "ByteLevel"},
                                  {"add_prefix_space", false},
                                  {"trim_offsets", true},
                                  {"use_regex", false}};
  definition.parts[0] = "null";
  definition.parts[1] = splitter.pre_tokenizer.dump();
  definition.parts[3] = decoder.dump();
  definition.parts[4] =
      nlohmann::json{
          {"type", "BPE"},          {"dropout", nullptr},
          {"unk_token", nullptr},   {"fuse_unk", false},
          {"byte_fallback", false}, {"ignore_merges", splitter.ignore_merges}}
          .dump();
  definition.pre_tokenizers =
      ReadPreTokenizers({&splitter.pre_tokenizer, ""}).steps;
  definition.decoders = ReadDecoders({&decoder, ""});
  definition.bpe.bytes = true;
  definition.bpe.ignore_merges = splitter.ignore_merges;
  definition.merges = TakeMerges(keys, index, definition.tokens);
  return KeyedPipeline(std::move(definition));
}

}  // namespace tarn
