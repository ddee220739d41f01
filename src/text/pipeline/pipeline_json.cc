#include "text/pipeline/pipeline_json.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <utility>

#include "core/text.h"
#include "text/bpe_tokenizer.h"
#include "text/pipeline/unigram.h"
#include "text/token_table.h"

namespace tarn {
namespace {

constexpr const char* kParts[] = {"normalizer", "pre_tokenizer",
                                  "post_processor", "decoder"};

void CheckBpeModel(const JsonNode& model) {
  CheckKeys(model, {"type", "dropout", "unk_token", "continuing_subword_prefix",
                    "end_of_word_suffix", "fuse_unk", "byte_fallback",
                    "ignore_merges", "vocab", "merges"});
  const JsonNode dropout = model["dropout"];
  if (!dropout.null() && *dropout.value != 0) dropout.Refuse("null or 0");
  for (const char* affix :
       {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const JsonNode node = model[affix];
    if (!node.null() && !node.text().empty()) node.Refuse("null or no text");
  }
}

std::unordered_map<std::string, size_t> ContentsOf(
    const std::vector<AddedToken>& added) {
  std::unordered_map<std::string, size_t> contents;
  for (size_t i = 0; i < added.size(); ++i) {
    contents.emplace(added[i].content, i);
  }
  return contents;
}

void ReadBpeModel(const JsonNode& model, PipelineDefinition& definition) {
  CheckBpeModel(model);
  TokenTable table(TokenTable::Form::kAsWritten);
  table.AddVocabulary(model["vocab"], ContentsOf(definition.added));
  const JsonNode unknown = model["unk_token"];
  const bool has_unknown = !unknown.null() && !unknown.text().empty();
  BpeRules& rules = definition.bpe;
  if (has_unknown && !rules.bytes) {
    rules.unknown = table.Find(unknown.path, unknown.text());
  }
  rules.fuse_unknown = model["fuse_unk"].flag(false);
  rules.ignore_merges = model["ignore_merges"].flag(false);
  rules.byte_fallback = model["byte_fallback"].flag(false);
  if (rules.byte_fallback && rules.bytes) {
    model["byte_fallback"].Refuse("false with a ByteLevel pre_tokenizer");
  }
  PlaceAdded(table, definition.added);
  definition.merges = ReadMerges(model["merges"], table);
  definition.tokens = table.TakeWithGaps("model.vocab");
}

// vocab: [["token", score], ...] by id.
void ReadUnigramModel(const JsonNode& model, PipelineDefinition& definition) {
  CheckKeys(model, {"type", "unk_id", "vocab", "byte_fallback"});
  definition.model = PieceModelKind::kUnigram;
  if (definition.bpe.bytes) model["type"].Refuse("BPE with ByteLevel");
  const JsonNode vocab = model["vocab"];
  const size_t count = vocab.array();
  if (count == 0 || count > kMaxBpeTokens) {
    vocab.Refuse(StrCat("1 to ", kMaxBpeTokens, " tokens"));
  }
  TokenTable table(TokenTable::Form::kAsWritten);
  nlohmann::json ids = nlohmann::json::object();
  for (size_t id = 0; id < count; ++id) {
    const JsonNode entry = vocab.at(id);
    if (entry.array() != 2) entry.Refuse("a token and its score");
    const std::string& token = ShortText(entry.at(0), kMaxUnigramBytes);
    const JsonNode score = entry.at(1);
    if (!score.value->is_number() ||
        !std::isfinite(score.value->get<double>())) {
      score.Refuse("a finite number");
    }
    if (!ids.emplace(token, id).second) {
      entry.at(0).Refuse("each token once");
    }
    definition.scores.push_back(score.value->get<double>());
  }
  table.AddVocabulary({&ids, vocab.path}, {});
  PlaceAdded(table, definition.added);
  definition.tokens = table.TakeWithGaps("model.vocab");
  const JsonNode unknown = model["unk_id"];
  if (!unknown.null()) {
    definition.bpe.unknown =
        static_cast<int32_t>(unknown.whole(0, static_cast<int64_t>(count) - 1));
  }
  definition.bpe.byte_fallback = model["byte_fallback"].flag(false);
}

std::string Dump(const JsonNode& node) {
  return node.null() ? "null" : node.value->dump();
}

// The model's keys but for the two large ones.
std::string DumpModel(const nlohmann::json& model) {
  nlohmann::json rest = nlohmann::json::object();
  for (const auto& [key, value] : model.items()) {
    if (key != "vocab" && key != "merges") rest[key] = value;
  }
  return rest.dump();
}

PipelineDefinition ReadPipelineRoot(const JsonNode& root) {
  CheckTokenizerRoot(root);
  PipelineDefinition definition;
  for (size_t i = 0; i < std::size(kParts); ++i) {
    definition.parts[i] = Dump(root[kParts[i]]);
  }
  definition.normalizers = ReadNormalizers(root["normalizer"]);
  PreTokenizers cuts = ReadPreTokenizers(root["pre_tokenizer"]);
  definition.pre_tokenizers = std::move(cuts.steps);
  definition.bpe.bytes = cuts.byte_level;
  definition.decoders = ReadDecoders(root["decoder"]);
  const bool decodes_bytes =
      std::any_of(definition.decoders.begin(), definition.decoders.end(),
                  [](const DecoderStep& step) {
                    return step.kind == DecoderStep::Kind::kByteLevel;
                  });
  if (decodes_bytes && !cuts.byte_level) {
    root["pre_tokenizer"].Refuse("ByteLevel, as the decoder");
  }
  if (cuts.byte_level && (!decodes_bytes || definition.decoders.size() != 1)) {
    root["decoder"].Refuse("ByteLevel, as the pre_tokenizer");
  }
  definition.added = ReadAdded(root["added_tokens"]);
  const JsonNode model = root["model"];
  if (model.null() || !model.value->is_object()) model.Refuse("an object");
  const JsonNode type = model["type"];
  // The oldest files have no type.
  if (type.value == nullptr || type.text() == "BPE") {
    ReadBpeModel(model, definition);
  } else if (type.text() == "Unigram") {
    ReadUnigramModel(model, definition);
  } else {
    type.Refuse("'BPE' or 'Unigram'");
  }
  definition.parts[4] = DumpModel(*model.value);
  TextEnds ends = ReadPostProcessor(
      root["post_processor"], static_cast<int64_t>(definition.tokens.size()));
  definition.before = std::move(ends.before);
  definition.after = std::move(ends.after);
  return definition;
}

}  // namespace

Result<PipelineDefinition> PipelineFromJson(const nlohmann::json& root) {
  try {
    return ReadPipelineRoot({&root, ""});
  } catch (const FormatError& error) {
    return Error(error);
  }
}

}  // namespace tarn
