#include "text/bpe_json.h"

#include <algorithm>
#include <unordered_map>

#include "core/text.h"
#include "text/json_node.h"
#include "text/pipeline/pipeline_json.h"
#include "text/token_table.h"

namespace tarn {
namespace {

using Json = nlohmann::json;

constexpr char kEndOfText[] = "<|endoftext|>";

bool ReadNormalizer(const JsonNode& node) {
  if (node.null()) return false;
  CheckType(node, "NFC");
  CheckKeys(node, {"type"});
  return true;
}

// The pattern by which the pre-tokenizer cuts, or null.
const SplitPattern* ReadPreTokenizer(const JsonNode& node) {
  if (node.null() || !node.value->is_object() || node["type"].null() ||
      node["type"].text() != "Sequence") {
    CheckByteLevel(node, true);
    return node["use_regex"].flag(true) ? &Gpt2Split() : nullptr;
  }
  CheckKeys(node, {"type", "pretokenizers"});
  const JsonNode parts = node["pretokenizers"];
  if (parts.array() != 2) parts.Refuse("Split, then ByteLevel");
  const JsonNode split = parts.at(0), bytes = parts.at(1);
  CheckType(split, "Split");
  CheckKeys(split, {"type", "pattern", "behavior", "invert"});
  CheckKeys(split["pattern"], {"Regex"});
  const JsonNode pattern = split["pattern"]["Regex"];
  const SplitPattern* found = FindSplitPattern(pattern.text());
  if (found == nullptr) pattern.Refuse(SplitPatternNames());
  if (split["behavior"].text() != "Isolated") {
    split["behavior"].Refuse("'Isolated'");
  }
  if (split["invert"].flag(false)) split["invert"].Refuse("false");
  CheckByteLevel(bytes, true);
  if (bytes["use_regex"].flag(true)) bytes["use_regex"].Refuse("false");
  return found;
}

void CheckModel(const JsonNode& model) {
  CheckKeys(model, {"type", "dropout", "unk_token", "continuing_subword_prefix",
                    "end_of_word_suffix", "fuse_unk", "byte_fallback",
                    "ignore_merges", "vocab", "merges"});
  // The oldest files of GPT-2 have no type.
  if (model["type"].value != nullptr) CheckType(model, "BPE");
  const JsonNode dropout = model["dropout"];
  if (!dropout.null() && *dropout.value != 0) dropout.Refuse("null or 0");
  for (const char* affix :
       {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const JsonNode node = model[affix];
    if (!node.null() && !node.text().empty()) node.Refuse("null or no text");
  }
  // Every byte of a text has a token or is an error: nothing is unknown.
  const JsonNode unknown = model["unk_token"];
  if (!unknown.null()) unknown.text();
  model["fuse_unk"].flag(false);
  if (model["byte_fallback"].flag(false)) {
    model["byte_fallback"].Refuse("false");
  }
}

BpeDefinition ReadRoot(const JsonNode& root) {
  CheckTokenizerRoot(root);
  BpeDefinition definition;
  definition.nfc = ReadNormalizer(root["normalizer"]);
  definition.split = ReadPreTokenizer(root["pre_tokenizer"]);
  if (!root["post_processor"].null()) {
    CheckByteLevel(root["post_processor"], false);
  }
  CheckByteLevel(root["decoder"], false);
  const JsonNode model = root["model"];
  CheckModel(model);
  definition.ignore_merges = model["ignore_merges"].flag(false);
  definition.added = ReadAdded(root["added_tokens"]);

  std::unordered_map<std::string, size_t> contents;
  for (size_t i = 0; i < definition.added.size(); ++i) {
    contents.emplace(definition.added[i].content, i);
  }
  TokenTable table(TokenTable::Form::kBytes);
  table.AddVocabulary(model["vocab"], contents);
  PlaceAdded(table, definition.added);
  definition.merges = ReadMerges(model["merges"], table);
  definition.tokens = table.Take("model.vocab");
  return definition;
}

// The text of a key, or nothing.
std::string TextOf(const Json& object, const char* key) {
  if (!object.is_object()) return "";
  const auto found = object.find(key);
  return found == object.end() || !found->is_string()
             ? ""
             : found->get<std::string>();
}

Json PartOf(const Json& object, const char* key) {
  return object.is_object() && object.contains(key) ? object[key] : Json();
}

bool IsPlainSplit(const Json& node) {
  if (TextOf(node, "type") != "Sequence") {
    return TextOf(node, "type") == "ByteLevel";
  }
  const Json parts = PartOf(node, "pretokenizers");
  return parts.is_array() && parts.size() == 2 &&
         TextOf(parts[0], "type") == "Split" &&
         PartOf(parts[0], "pattern").contains("Regex") &&
         TextOf(parts[0], "behavior") == "Isolated" &&
         TextOf(parts[1], "type") == "ByteLevel";
}

// Whether the largest id leaves a gap below it.
bool HasGaps(const Json& vocab, const Json& added) {
  int64_t count = 0, largest = -1;
  const auto see = [&](const Json& id) {
    ++count;
    largest = std::max(largest, JsonInteger(id).value_or(-1));
  };
  for (const auto& [key, id] : vocab.items()) see(id);
  if (added.is_array()) {
    for (const Json& entry : added) {
      const std::string content = TextOf(entry, "content");
      if (!vocab.contains(content) && entry.is_object()) {
        see(entry.value("id", Json()));
      }
    }
  }
  return largest >= count;
}

}  // namespace

bool IsPlainBpe(const Json& root) {
  const Json& model = root["model"];
  if (!model.is_object()) return true;  // the reader refuses it
  const Json normalizer = PartOf(root, "normalizer");
  const Json post = PartOf(root, "post_processor");
  const bool typed = model.contains("type");
  return (!typed || TextOf(model, "type") == "BPE") &&
         (normalizer.is_null() || TextOf(normalizer, "type") == "NFC") &&
         IsPlainSplit(PartOf(root, "pre_tokenizer")) &&
         (post.is_null() || TextOf(post, "type") == "ByteLevel") &&
         TextOf(PartOf(root, "decoder"), "type") == "ByteLevel" &&
         !(model.contains("vocab") && model["vocab"].is_object() &&
           HasGaps(model["vocab"], PartOf(root, "added_tokens")));
}

Result<BpeDefinition> BpeFromJson(const Json& root) {
  try {
    return ReadRoot({&root, ""});
  } catch (const FormatError& error) {
    return Error(error);
  }
}

Result<BpeDefinition> BpeFromPair(const Json& encoder,
                                  std::string_view merges) {
  try {
    BpeDefinition definition;
    TokenTable table(TokenTable::Form::kBytes);
    table.AddVocabulary({&encoder, "model.vocab"}, {{kEndOfText, 0}});
    if (const int32_t* id = table.FindOrNull(kEndOfText)) {
      AddedToken token;
      token.id = *id;
      token.content = kEndOfText;
      token.special = token.in_vocabulary = true;
      definition.added.push_back(token);
    }
    for (int64_t line = 1; !merges.empty(); ++line) {
      const size_t end = std::min(merges.find('\n'), merges.size());
      const std::string text(merges.substr(0, end));
      merges.remove_prefix(std::min(end + 1, merges.size()));
      if (text.empty() || (line == 1 && text.starts_with("#version"))) continue;
      definition.merges.push_back(
          MergeOfText(table, StrCat("vocab.bpe: line ", line), text));
    }
    definition.tokens = table.Take("model.vocab");
    return definition;
  } catch (const FormatError& error) {
    return Error(error);
  }
}

}  // namespace tarn
