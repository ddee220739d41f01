// A PipelineDefinition as a tokenizer.json.
#include "text/bpe_json.h"
#include "text/pipeline/pipeline_json.h"
#include "text/pipeline/score_pieces.h"

namespace tarn {
namespace {

std::string Quote(const std::string& text) {
  return nlohmann::json(text).dump();
}

// {"token":id,...} or [["token",score],...]
std::string VocabularyJson(const PipelineDefinition& definition) {
  const bool scores = definition.model == PieceModelKind::kUnigram;
  std::vector<bool> only_added(definition.tokens.size());
  for (const AddedToken& token : definition.added) {
    only_added[static_cast<size_t>(token.id)] = !token.in_vocabulary;
  }
  std::string text;
  for (size_t id = 0; id < definition.tokens.size(); ++id) {
    if (only_added[id] || definition.tokens[id].empty()) continue;
    text += text.empty() ? "" : ",";
    if (scores) {
      text += "[" + Quote(definition.tokens[id]) + "," +
              nlohmann::json(definition.scores[id]).dump() + "]";
    } else {
      text += Quote(definition.tokens[id]) + ":" + std::to_string(id);
    }
  }
  return scores ? "[" + text + "]" : "{" + text + "}";
}

// A tokenizer.json holds merges where a GGUF file holds scores.
std::vector<BpeMerge> MergesOf(const PipelineDefinition& definition) {
  if (definition.model == PieceModelKind::kBpe) return definition.merges;
  std::vector<std::string> texts = definition.tokens;
  for (const AddedToken& token : definition.added) {
    texts[static_cast<size_t>(token.id)].clear();
  }
  return MergesOfScores(texts, definition.scores);
}

std::string MergesJson(const PipelineDefinition& definition) {
  std::string text;
  for (const BpeMerge& merge : MergesOf(definition)) {
    text += text.empty() ? "[" : ",[";
    text += Quote(definition.tokens[static_cast<size_t>(merge.left)]) + "," +
            Quote(definition.tokens[static_cast<size_t>(merge.right)]) + "]";
  }
  return "[" + text + "]";
}

}  // namespace

std::string PipelineToJson(const PipelineDefinition& definition) {
  nlohmann::ordered_json added = nlohmann::ordered_json::array();
  for (const AddedToken& token : definition.added) {
    added.push_back(AddedTokenJson(token));
  }
  const auto& [normalizer, pre_tokenizer, post_processor, decoder, model] =
      definition.parts;
  std::string text = R"({"version":"1.0","truncation":null,"padding":null,)";
  text += "\"added_tokens\":" + added.dump() + ",\"normalizer\":" + normalizer;
  text += ",\"pre_tokenizer\":" + pre_tokenizer;
  text += ",\"post_processor\":" + post_processor + ",\"decoder\":" + decoder;
  text += ",\"model\":" + model.substr(0, model.size() - 1);
  text += model == "{}" ? "" : ",";
  text += "\"vocab\":" + VocabularyJson(definition);
  if (definition.model != PieceModelKind::kUnigram) {
    text += ",\"merges\":" + MergesJson(definition);
  }
  return text + "}}\n";
}

}  // namespace tarn
