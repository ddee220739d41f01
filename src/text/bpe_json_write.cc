#include "text/bpe_json.h"
#include "text/byte_alphabet.h"

namespace tarn {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson ByteLevel(bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

// GPT-2's pattern is ByteLevel's own; another comes before it.
OrderedJson PreTokenizer(const SplitPattern* split) {
  if (split == nullptr) return ByteLevel(false);
  if (split->pattern == Gpt2Split().pattern) return ByteLevel(true);
  const OrderedJson cut = {{"type", "Split"},
                           {"pattern", {{"Regex", split->pattern}}},
                           {"behavior", "Isolated"},
                           {"invert", false}};
  return {{"type", "Sequence"},
          {"pretokenizers", OrderedJson::array({cut, ByteLevel(false)})}};
}

// Each token as model.vocab writes it; empty for those it does not list.
std::vector<std::string> Keys(const BpeDefinition& definition) {
  std::vector<std::string> keys;
  for (const std::string& token : definition.tokens) {
    keys.push_back(BytesToAlphabet(token));
  }
  for (const AddedToken& token : definition.added) {
    keys[static_cast<size_t>(token.id)] =
        token.in_vocabulary ? token.content : "";
  }
  return keys;
}

}  // namespace

OrderedJson AddedTokenJson(const AddedToken& token) {
  return {{"id", token.id},
          {"content", token.content},
          {"single_word", token.single_word},
          {"lstrip", token.lstrip},
          {"rstrip", token.rstrip},
          {"normalized", token.normalized},
          {"special", token.special}};
}

std::string BpeToJson(const BpeDefinition& definition) {
  const std::vector<std::string> keys = Keys(definition);
  const auto key = [&](int32_t id) { return keys[static_cast<size_t>(id)]; };
  OrderedJson added = OrderedJson::array();
  for (const AddedToken& token : definition.added) {
    added.push_back(AddedTokenJson(token));
  }
  OrderedJson model = {{"type", "BPE"},
                       {"dropout", nullptr},
                       {"unk_token", nullptr},
                       {"continuing_subword_prefix", nullptr},
                       {"end_of_word_suffix", nullptr},
                       {"fuse_unk", false},
                       {"byte_fallback", false},
                       {"ignore_merges", definition.ignore_merges}};
  // The large parts are written by hand as text: an ordered object searches for
  // every new key among all before it.
  std::string vocab, merges;
  for (size_t id = 0; id < keys.size(); ++id) {
    if (keys[id].empty()) continue;
    vocab += (vocab.empty() ? "" : ",") + OrderedJson(keys[id]).dump() + ":" +
             std::to_string(id);
  }
  for (const BpeMerge& merge : definition.merges) {
    merges += merges.empty() ? "" : ",";
    merges += OrderedJson::array({key(merge.left), key(merge.right)}).dump();
  }
  std::string model_text = model.dump();
  model_text.pop_back();
  model_text += ",\"vocab\":{" + vocab + "},\"merges\":[" + merges + "]}";
  OrderedJson root = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added},
      {"normalizer",
       definition.nfc ? OrderedJson{{"type", "NFC"}} : OrderedJson(nullptr)},
      {"pre_tokenizer", PreTokenizer(definition.split)},
      {"post_processor", nullptr},
      {"decoder", ByteLevel(true)}};
  std::string text = root.dump();
  text.pop_back();
  return text + ",\"model\":" + model_text + "}\n";
}

}  // namespace tarn
