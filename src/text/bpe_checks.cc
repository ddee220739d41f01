#include "text/bpe_checks.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/text.h"

namespace tarn {
namespace {

// A match costs as many steps as a content has bytes; longer ones would make
// encoding slower than linear in any useful sense.
constexpr size_t kMaxAddedBytes = 256;
constexpr size_t kMaxAddedTotal = size_t{1} << 22;  // bytes; bounds the trie

[[noreturn]] void RefuseTables(const std::string& place,
                               const std::string& wanted,
                               const std::string& given) {
  throw FormatError("tokenizer.json: " + place, wanted, given);
}

}  // namespace

void CheckAddedTokens(const std::vector<AddedToken>& added,
                      const std::vector<std::string>& tokens) {
  std::vector<int32_t> ids;
  std::vector<std::string_view> contents;
  size_t total = 0;
  for (size_t i = 0; i < added.size(); ++i) {
    const AddedToken& token = added[i];
    const std::string place = StrCat("added_tokens[", i, "]");
    const auto id = static_cast<size_t>(token.id);
    if (token.id < 0 || id >= tokens.size() || tokens[id] != token.content) {
      RefuseTables(place, "an id whose token is the content",
                   StrCat("id ", token.id, " of ", Quoted(token.content)));
    }
    if (token.content.size() > kMaxAddedBytes) {
      RefuseTables(place + ".content",
                   StrCat("at most ", kMaxAddedBytes, " bytes"),
                   StrCat(token.content.size()));
    }
    total += token.content.size();
    ids.push_back(token.id);
    contents.push_back(token.content);
  }
  if (total > kMaxAddedTotal) {
    RefuseTables("added_tokens",
                 StrCat("at most ", kMaxAddedTotal, " bytes in all"),
                 StrCat(total));
  }
  std::sort(ids.begin(), ids.end());
  std::sort(contents.begin(), contents.end());
  const auto twice = std::adjacent_find(contents.begin(), contents.end());
  if (twice != contents.end()) {
    RefuseTables("added_tokens", "each content once",
                 Quoted(*twice) + " twice");
  }
  if (std::adjacent_find(ids.begin(), ids.end()) != ids.end()) {
    RefuseTables("added_tokens", "each id once", "one twice");
  }
}

void CheckMerges(const std::vector<BpeMerge>& merges,
                 const std::vector<std::string>& tokens,
                 const std::vector<bool>& reserved) {
  std::vector<std::pair<int32_t, int32_t>> pairs;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const BpeMerge& merge = merges[rank];
    const auto place = [&] { return StrCat("model.merges[", rank, "]"); };
    for (const int32_t id : {merge.left, merge.right, merge.result}) {
      if (id < 0 || static_cast<size_t>(id) >= tokens.size() ||
          reserved[static_cast<size_t>(id)]) {
        RefuseTables(place(), "ordinary tokens of model.vocab",
                     StrCat("id ", id));
      }
    }
    const std::string& left = tokens[static_cast<size_t>(merge.left)];
    const std::string& right = tokens[static_cast<size_t>(merge.right)];
    const std::string& result = tokens[static_cast<size_t>(merge.result)];
    if (result.size() != left.size() + right.size() ||
        !result.starts_with(left) || !result.ends_with(right)) {
      RefuseTables(place(), "a result that is both parts together",
                   Quoted(result));
    }
    pairs.push_back({merge.left, merge.right});
  }
  std::sort(pairs.begin(), pairs.end());
  if (std::adjacent_find(pairs.begin(), pairs.end()) != pairs.end()) {
    RefuseTables("model.merges", "each pair once", "one twice");
  }
}

std::vector<AddedToken> FirstOfEachContent(std::vector<AddedToken> tokens) {
  std::stable_sort(tokens.begin(), tokens.end(),
                   [](const AddedToken& a, const AddedToken& b) {
                     return a.content < b.content;
                   });
  const auto same = [](const AddedToken& a, const AddedToken& b) {
    return a.content == b.content;
  };
  tokens.erase(std::unique(tokens.begin(), tokens.end(), same), tokens.end());
  return tokens;
}

}  // namespace tarn
