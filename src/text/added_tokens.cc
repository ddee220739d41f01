#include "text/added_tokens.h"

#include <algorithm>
#include <utility>

#include "text/unicode/unicode.h"

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

// The first range that ends after `at`.
auto EndingAfter(std::span<const ByteRange> ranges, size_t at) {
  return std::upper_bound(
      ranges.begin(), ranges.end(), at,
      [](size_t wanted, const ByteRange& range) { return wanted < range.end; });
}

}  // namespace

size_t SpecialScope::Room(size_t at, size_t text_bytes) const {
  const auto next = EndingAfter(data, at);
  if (next == data.end()) return text_bytes - at;
  return next->begin <= at ? 0 : next->begin - at;
}

size_t SpecialScope::DataEnd(size_t at) const {
  const auto range = EndingAfter(data, at);
  return range == data.end() ? at : range->end;
}

std::vector<ByteRange> RangesWithin(std::span<const ByteRange> ranges,
                                    size_t begin, size_t end) {
  std::vector<ByteRange> within;
  for (auto range = EndingAfter(ranges, begin);
       range != ranges.end() && range->begin < end; ++range) {
    within.push_back({std::max(range->begin, begin) - begin,
                      std::min(range->end, end) - begin});
  }
  return within;
}

std::vector<ByteRange> RangesAfter(
    std::string_view text, std::span<const ByteRange> ranges,
    std::string_view normalised,
    const std::function<std::string(std::string_view piece, bool first)>&
        normalise) {
  if (text == normalised) return {ranges.begin(), ranges.end()};
  if (ranges.empty()) return {};
  std::vector<ByteRange> after;
  std::string all;
  const auto append = [&](size_t begin, size_t end) {
    if (begin < end) all += normalise(text.substr(begin, end - begin), !begin);
  };
  size_t done = 0;
  for (const ByteRange& range : ranges) {
    append(done, range.begin);
    const size_t begin = all.size();
    append(range.begin, range.end);
    if (begin < all.size()) after.push_back({begin, all.size()});
    done = range.end;
  }
  append(done, text.size());
  if (all == normalised) return after;
  // Characters of two pieces became one: no place divides what is data.
  if (normalised.empty()) return {};
  return {{0, normalised.size()}};
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens)
    : tokens_(std::move(tokens)) {
  std::vector<std::pair<std::string_view, int32_t>> strings;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    strings.push_back({tokens_[i].content, static_cast<int32_t>(i)});
    has_special_ = has_special_ || tokens_[i].special;
  }
  trie_ = ByteTrie(std::move(strings));
}

// The longest token at `at`; where that is a special one which reaches into
// data, the longest that does not: data must not hide a token before it.
ByteTrie::Match AddedTokens::MatchAt(std::string_view text, size_t at,
                                     const SpecialScope& scope) const {
  const ByteTrie::Match match = trie_.Longest(text.substr(at));
  if (match.id < 0 || !scope.allowed || scope.data.empty() ||
      !tokens_[static_cast<size_t>(match.id)].special) {
    return match;
  }
  const size_t room = scope.Room(at, text.size());
  if (match.bytes <= room) return match;
  if (room > 0) return trie_.Longest(text.substr(at, room));
  // Within data it is text, of which the data's end is the end.
  return {match.id, std::min(match.bytes, scope.DataEnd(at) - at)};
}

bool AddedTokens::VisitParts(std::string_view text, const SpecialScope& scope,
                             const Visitor& visit) const {
  size_t done = 0;  // everything before it has been visited
  // The run of white space that was last looked at after a match: tokens of
  // white space that take what follows them would read it again each time.
  size_t run_begin = 0, run_end = 0;
  for (size_t at = 0; !trie_.empty() && at < text.size();) {
    const ByteTrie::Match match = MatchAt(text, at, scope);
    if (match.id < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(match.id)];
    size_t begin = at, end = at + match.bytes;
    at = end;
    const bool from_data = !scope.data.empty() && token.special &&
                           scope.Room(begin, text.size()) == 0;
    if ((token.special && (!scope.allowed || from_data)) ||
        (token.single_word &&
         TouchesWord(text.substr(0, begin), text.substr(end)))) {
      continue;
    }
    if (token.lstrip) {
      begin = std::max(begin, done);
      begin = done + SpaceAtEnd(text.substr(done, begin - done));
    }
    if (token.rstrip) {
      if (end < run_begin || end > run_end) {
        run_begin = end;
        run_end = end + SpaceAtStart(text.substr(end));
      }
      end = run_end;
    }
    if (begin > done && !visit(-1, text.substr(done, begin - done))) {
      return false;
    }
    const size_t bytes = end > begin ? end - begin : 0;
    if (!visit(token.id, text.substr(begin, bytes))) return false;
    // A token of white space is found again within what the token before it
    // took, and then text from its end on counts again: as the package does.
    done = end;
  }
  return done == text.size() || visit(-1, text.substr(done));
}

}  // namespace tarn
