#include "text/token_table.h"

#include <algorithm>

#include "core/text.h"
#include "text/byte_alphabet.h"

namespace tarn {
namespace {

constexpr int64_t kIdsPerGap = 100;

BpeMerge MergeOf(const TokenTable& table, const std::string& path,
                 const std::string& left, const std::string& right) {
  return {table.Find(path, left), table.Find(path, right),
          table.Find(path, left + right)};
}

}  // namespace

void TokenTable::AddVocabulary(
    const JsonNode& vocab,
    const std::unordered_map<std::string, size_t>& added) {
  if (vocab.value == nullptr || !vocab.value->is_object()) {
    vocab.Refuse("an object of token: id");
  }
  for (const auto& [key, value] : vocab.value->items()) {
    const int32_t id = IdOrNone(value);
    if (id < 0) {
      RefuseJson(StrCat(vocab.path, ".", Quoted(key)), IdWanted(),
                 JsonGiven(value));
    }
    ids_.emplace(key, id);
    if (form_ == Form::kAsWritten && key.empty()) {
      RefuseJson(vocab.path, "tokens of at least one byte", "an empty one");
    }
    if (form_ == Form::kAsWritten || added.count(key) != 0) {
      Set(vocab.path, id, key);
      continue;
    }
    const auto bytes = AlphabetToBytes(key);
    if (!bytes) {
      RefuseJson(vocab.path, "tokens in the alphabet of bytes", Quoted(key));
    }
    Set(vocab.path, id, *bytes);
  }
}

void TokenTable::Set(const std::string& path, int32_t id, std::string token) {
  const auto at = static_cast<size_t>(id);
  if (at >= tokens_.size()) {
    tokens_.resize(at + 1);
    known_.resize(at + 1);
  }
  if (known_[at]) RefuseJson(path, "each id once", StrCat("id ", id, " twice"));
  known_[at] = true;
  tokens_[at] = std::move(token);
}

int32_t TokenTable::Find(const std::string& path,
                         const std::string& token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) {
    RefuseJson(path, "tokens of model.vocab", Quoted(token));
  }
  return found->second;
}

const int32_t* TokenTable::FindOrNull(const std::string& token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? nullptr : &found->second;
}

std::vector<std::string> TokenTable::Take(const std::string& path) {
  const auto gap = std::find(known_.begin(), known_.end(), false);
  if (gap != known_.end()) {
    RefuseJson(path, "ids from 0 on without a gap",
               StrCat("no id ", gap - known_.begin()));
  }
  return std::move(tokens_);
}

std::vector<std::string> TokenTable::TakeWithGaps(const std::string& path) {
  const auto gaps = std::count(known_.begin(), known_.end(), false);
  if (gaps * kIdsPerGap > static_cast<int64_t>(known_.size())) {
    RefuseJson(path,
               StrCat("at most one id in ", kIdsPerGap, " without a token"),
               StrCat(gaps, " of ", known_.size()));
  }
  return std::move(tokens_);
}

BpeMerge MergeOfText(const TokenTable& table, const std::string& path,
                     const std::string& text) {
  const size_t space = text.find(' ');
  if (space == text.npos || text.find(' ', space + 1) != text.npos) {
    RefuseJson(path, "two tokens with one space between", Quoted(text));
  }
  return MergeOf(table, path, text.substr(0, space), text.substr(space + 1));
}

std::vector<BpeMerge> ReadMerges(const JsonNode& node,
                                 const TokenTable& table) {
  std::vector<BpeMerge> merges;
  const size_t count = node.array();
  for (size_t i = 0; i < count; ++i) {
    const JsonNode merge = node.at(i);
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

std::vector<AddedToken> ReadAdded(const JsonNode& node) {
  std::vector<AddedToken> added;
  const size_t count = node.value == nullptr ? 0 : node.array();
  for (size_t i = 0; i < count; ++i) {
    const JsonNode entry = node.at(i);
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

void PlaceAdded(TokenTable& table, std::vector<AddedToken>& added) {
  for (AddedToken& token : added) {
    const int32_t* id = table.FindOrNull(token.content);
    token.in_vocabulary = id != nullptr && *id == token.id;
    if (token.in_vocabulary) continue;
    if (id != nullptr) {
      RefuseJson(
          "added_tokens",
          StrCat("the id ", *id, " of model.vocab for ", Quoted(token.content)),
          StrCat(token.id));
    }
    table.Set("added_tokens", token.id, token.content);
  }
}

}  // namespace tarn
