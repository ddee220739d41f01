#include "text/bpe_json.h"

#include <algorithm>
#include <initializer_list>
#include <unordered_map>

#include "core/text.h"
#include "text/byte_alphabet.h"

namespace tarn {
namespace {

using Json = nlohmann::json;

constexpr char kFile[] = "tokenizer.json";
constexpr char kEndOfText[] = "<|endoftext|>";

[[noreturn]] void Refuse(const std::string& path, const std::string& wanted,
                         const std::string& given) {
  throw FormatError(StrCat(kFile, path.empty() ? "" : ": ", path), wanted,
                    given);
}

// A value with its path, so that every error can name the place.
struct Node {
  const Json* value;  // null: the key is absent
  std::string path;

  bool null() const { return value == nullptr || value->is_null(); }
  std::string given() const {
    return value == nullptr ? "nothing" : JsonGiven(*value);
  }
  [[noreturn]] void Refuse(const std::string& wanted) const {
    tarn::Refuse(path, wanted, given());
  }
  Node operator[](const char* key) const {
    const auto found = value->find(key);
    return {found == value->end() ? nullptr : &*found,
            path.empty() ? key : path + "." + key};
  }
  Node at(size_t i) const { return {&(*value)[i], StrCat(path, "[", i, "]")}; }
  const std::string& text() const {
    if (value == nullptr || !value->is_string()) Refuse("a text");
    return value->get_ref<const std::string&>();
  }
  // An absent key has the value `absent`.
  bool flag(bool absent) const {
    if (value == nullptr) return absent;
    if (!value->is_boolean()) Refuse("true or false");
    return value->get<bool>();
  }
  size_t array() const {
    if (value == nullptr || !value->is_array()) Refuse("an array");
    return value->size();
  }
};

// An object with no other keys than these.
void CheckKeys(const Node& node, std::initializer_list<const char*> keys) {
  if (node.value == nullptr || !node.value->is_object()) {
    node.Refuse("an object");
  }
  for (const auto& [key, value] : node.value->items()) {
    const auto known = [&k = key](const char* name) { return k == name; };
    if (std::none_of(keys.begin(), keys.end(), known)) {
      Refuse(node.path, "only supported keys", Quoted(key));
    }
  }
}

void CheckType(const Node& node, const char* type) {
  const std::string wanted = StrCat("'", type, "'");
  if (node.null() || !node.value->is_object()) {
    node.Refuse("an object of type " + wanted);
  }
  const Node found = node["type"];
  if (found.null() || found.text() != type) found.Refuse(wanted);
}

void WantNull(const Node& node) {
  if (!node.null()) node.Refuse("null");
}

// The id a value stands for, or -1.
int32_t IdOrNone(const Json& value) {
  const auto id = JsonInteger(value);
  return id && *id >= 0 && *id < kMaxBpeTokens ? static_cast<int32_t>(*id) : -1;
}

std::string IdWanted() { return StrCat("an id from 0 to ", kMaxBpeTokens - 1); }

int32_t IdOf(const Node& node) {
  const int32_t id = node.null() ? -1 : IdOrNone(*node.value);
  if (id < 0) node.Refuse(IdWanted());
  return id;
}

bool ReadNormalizer(const Node& node) {
  if (node.null()) return false;
  CheckType(node, "NFC");
  CheckKeys(node, {"type"});
  return true;
}

// add_prefix_space would put a space where the text has none.
void CheckByteLevel(const Node& node, bool prefix_matters) {
  CheckType(node, "ByteLevel");
  CheckKeys(node, {"type", "add_prefix_space", "trim_offsets", "use_regex"});
  const bool prefix = node["add_prefix_space"].flag(true);
  if (prefix_matters && prefix) node["add_prefix_space"].Refuse("false");
  node["trim_offsets"].flag(true);  // offsets are not kept here
  node["use_regex"].flag(true);
}

// The pattern by which the pre-tokenizer cuts, or null.
const SplitPattern* ReadPreTokenizer(const Node& node) {
  if (node.null() || !node.value->is_object() || node["type"].null() ||
      node["type"].text() != "Sequence") {
    CheckByteLevel(node, true);
    return node["use_regex"].flag(true) ? &Gpt2Split() : nullptr;
  }
  CheckKeys(node, {"type", "pretokenizers"});
  const Node parts = node["pretokenizers"];
  if (parts.array() != 2) parts.Refuse("Split, then ByteLevel");
  const Node split = parts.at(0), bytes = parts.at(1);
  CheckType(split, "Split");
  CheckKeys(split, {"type", "pattern", "behavior", "invert"});
  CheckKeys(split["pattern"], {"Regex"});
  const Node pattern = split["pattern"]["Regex"];
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

// Collects (id, token) from the vocabulary and the added tokens, in any order,
// and returns a table without gaps.
class TokenTable {
 public:
  // key: as the file writes it. added: raw contents of the added tokens.
  void AddVocabulary(const Node& vocab,
                     const std::unordered_map<std::string, size_t>& added) {
    if (vocab.value == nullptr || !vocab.value->is_object()) {
      vocab.Refuse("an object of token: id");
    }
    for (const auto& [key, value] : vocab.value->items()) {
      const int32_t id = IdOrNone(value);
      if (id < 0) {
        Refuse(StrCat(vocab.path, ".", Quoted(key)), IdWanted(),
               JsonGiven(value));
      }
      ids_.emplace(key, id);
      if (added.count(key) != 0) {
        Set(vocab.path, id, key);
        continue;
      }
      const auto bytes = AlphabetToBytes(key);
      if (!bytes) {
        Refuse(vocab.path, "tokens in the alphabet of bytes", Quoted(key));
      }
      Set(vocab.path, id, *bytes);
    }
  }
  void Set(const std::string& path, int32_t id, std::string bytes) {
    const auto at = static_cast<size_t>(id);
    if (at >= tokens_.size()) {
      tokens_.resize(at + 1);
      known_.resize(at + 1);
    }
    if (known_[at]) Refuse(path, "each id once", StrCat("id ", id, " twice"));
    known_[at] = true;
    tokens_[at] = std::move(bytes);
  }
  // The id of a token as the file writes it.
  int32_t Find(const std::string& path, const std::string& token) const {
    const auto found = ids_.find(token);
    if (found == ids_.end()) {
      Refuse(path, "tokens of model.vocab", Quoted(token));
    }
    return found->second;
  }
  const int32_t* FindOrNull(const std::string& token) const {
    const auto found = ids_.find(token);
    return found == ids_.end() ? nullptr : &found->second;
  }
  std::vector<std::string> Take(const std::string& path) {
    const auto gap = std::find(known_.begin(), known_.end(), false);
    if (gap != known_.end()) {
      Refuse(path, "ids from 0 on without a gap",
             StrCat("no id ", gap - known_.begin()));
    }
    return std::move(tokens_);
  }

 private:
  std::vector<std::string> tokens_;
  std::vector<bool> known_;
  std::unordered_map<std::string, int32_t> ids_;
};

BpeMerge MergeOf(const TokenTable& table, const std::string& path,
                 const std::string& left, const std::string& right) {
  return {table.Find(path, left), table.Find(path, right),
          table.Find(path, left + right)};
}

// "a b": exactly one space, as no token of the byte alphabet holds any.
BpeMerge MergeOfText(const TokenTable& table, const std::string& path,
                     const std::string& text) {
  const size_t space = text.find(' ');
  if (space == text.npos || text.find(' ', space + 1) != text.npos) {
    Refuse(path, "two tokens with one space between", Quoted(text));
  }
  return MergeOf(table, path, text.substr(0, space), text.substr(space + 1));
}

std::vector<BpeMerge> ReadMerges(const Node& node, const TokenTable& table) {
  std::vector<BpeMerge> merges;
  const size_t count = node.array();
  for (size_t i = 0; i < count; ++i) {
    const Node merge = node.at(i);
    if (merge.value->is_string()) {
      merges.push_back(MergeOfText(table, merge.path, merge.text()));
      continue;
    }
    if (merge.array() != 2) merge.Refuse("two tokens");
    merges.push_back(
        MergeOf(table, merge.path, merge.at(0).text(), merge.at(1).text()));
  }
  return merges;
}

std::vector<AddedToken> ReadAdded(const Node& node) {
  std::vector<AddedToken> added;
  const size_t count = node.value == nullptr ? 0 : node.array();
  for (size_t i = 0; i < count; ++i) {
    const Node entry = node.at(i);
    CheckKeys(entry, {"id", "content", "single_word", "lstrip", "rstrip",
                      "normalized", "special"});
    AddedToken token;
    token.id = IdOf(entry["id"]);
    token.content = entry["content"].text();
    token.single_word = entry["single_word"].flag(false);
    token.lstrip = entry["lstrip"].flag(false);
    token.rstrip = entry["rstrip"].flag(false);
    token.special = entry["special"].flag(false);
    token.normalized = entry["normalized"].flag(!token.special);
    added.push_back(std::move(token));
  }
  return added;
}

void CheckModel(const Node& model) {
  CheckKeys(model, {"type", "dropout", "unk_token", "continuing_subword_prefix",
                    "end_of_word_suffix", "fuse_unk", "byte_fallback",
                    "ignore_merges", "vocab", "merges"});
  // The oldest files of GPT-2 have no type.
  if (model["type"].value != nullptr) CheckType(model, "BPE");
  const Node dropout = model["dropout"];
  if (!dropout.null() && *dropout.value != 0) dropout.Refuse("null or 0");
  for (const char* affix :
       {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const Node node = model[affix];
    if (!node.null() && !node.text().empty()) node.Refuse("null or no text");
  }
  // Every byte of a text has a token or is an error: nothing is unknown.
  const Node unknown = model["unk_token"];
  if (!unknown.null()) unknown.text();
  model["fuse_unk"].flag(false);
  if (model["byte_fallback"].flag(false)) {
    model["byte_fallback"].Refuse("false");
  }
}

BpeDefinition ReadRoot(const Node& root) {
  CheckKeys(root,
            {"version", "truncation", "padding", "added_tokens", "normalizer",
             "pre_tokenizer", "post_processor", "decoder", "model"});
  const Node version = root["version"];
  if (!version.null() && version.text() != "1.0") version.Refuse("'1.0'");
  WantNull(root["truncation"]);
  WantNull(root["padding"]);
  BpeDefinition definition;
  definition.nfc = ReadNormalizer(root["normalizer"]);
  definition.split = ReadPreTokenizer(root["pre_tokenizer"]);
  if (!root["post_processor"].null()) {
    CheckByteLevel(root["post_processor"], false);
  }
  CheckByteLevel(root["decoder"], false);
  const Node model = root["model"];
  CheckModel(model);
  definition.ignore_merges = model["ignore_merges"].flag(false);
  definition.added = ReadAdded(root["added_tokens"]);

  std::unordered_map<std::string, size_t> contents;
  for (size_t i = 0; i < definition.added.size(); ++i) {
    contents.emplace(definition.added[i].content, i);
  }
  TokenTable table;
  table.AddVocabulary(model["vocab"], contents);
  for (AddedToken& token : definition.added) {
    const int32_t* id = table.FindOrNull(token.content);
    token.in_vocabulary = id != nullptr && *id == token.id;
    if (token.in_vocabulary) continue;
    if (id != nullptr) {
      Refuse(
          "added_tokens",
          StrCat("the id ", *id, " of model.vocab for ", Quoted(token.content)),
          StrCat(token.id));
    }
    table.Set("added_tokens", token.id, token.content);
  }
  definition.merges = ReadMerges(model["merges"], table);
  definition.tokens = table.Take("model.vocab");
  return definition;
}

}  // namespace

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
    TokenTable table;
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
