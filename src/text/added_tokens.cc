#include "text/added_tokens.h"

#include <utility>

#include "text/unicode.h"

namespace tarn {
namespace {

bool TouchesWord(std::string_view before, std::string_view after) {
  return (!before.empty() && ReadLastCharacter(before).in_word) ||
         (!after.empty() && ReadCharacter(after).in_word);
}

// Where the white space at the end of `text` begins.
size_t SpaceAtEnd(std::string_view text) {
  while (!text.empty()) {
    const Character last = ReadLastCharacter(text);
    if (last.kind != CharacterClass::kSpace) break;
    text.remove_suffix(last.bytes);
  }
  return text.size();
}

size_t SpaceAtStart(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Character next = ReadCharacter(text.substr(at));
    if (next.kind != CharacterClass::kSpace) break;
    at += next.bytes;
  }
  return at;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens)
    : tokens_(std::move(tokens)) {
  std::vector<std::pair<std::string_view, int32_t>> strings;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    strings.push_back({tokens_[i].content, static_cast<int32_t>(i)});
  }
  trie_ = ByteTrie(std::move(strings));
}

bool AddedTokens::VisitParts(std::string_view text, bool allow_special,
                             const Visitor& visit) const {
  size_t done = 0;  // everything before it has been visited
  for (size_t at = 0; !trie_.empty() && at < text.size();) {
    const ByteTrie::Match match = trie_.Longest(text.substr(at));
    if (match.id < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(match.id)];
    size_t begin = at, end = at + match.bytes;
    at = end;
    if ((token.special && !allow_special) ||
        (token.single_word &&
         TouchesWord(text.substr(0, begin), text.substr(end)))) {
      continue;
    }
    if (token.lstrip) {
      begin = done + SpaceAtEnd(text.substr(done, begin - done));
    }
    if (token.rstrip) end += SpaceAtStart(text.substr(end));
    if (begin > done && !visit(-1, text.substr(done, begin - done))) {
      return false;
    }
    if (!visit(token.id, text.substr(begin, end - begin))) return false;
    at = done = end;
  }
  return done == text.size() || visit(-1, text.substr(done));
}

}  // namespace tarn
