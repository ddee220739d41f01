// Keys of additional properties: all but those that a schema names.
#include <algorithm>
#include <utility>

#include "core/error.h"
#include "text/grammar/schema/schema_reader.h"
#include "text/utf8.h"

namespace tarn::grammar {
namespace {

// A level of recursion for each character.
constexpr size_t kMaxKeyCharacters = 200;

std::u32string CodePoints(std::string_view text) {
  std::u32string out;
  while (!text.empty()) {
    const Utf8Head head = ReadUtf8(text);
    out.push_back(static_cast<char32_t>(head.code_point));
    text.remove_prefix(head.bytes);
  }
  return out;
}

}  // namespace

ExpressionId JsonTexts::StringExcept(std::vector<std::string> texts,
                                     const std::string& pointer) {
  if (texts.empty()) return String();
  std::vector<std::u32string> names;
  for (const std::string& text : texts) {
    names.push_back(CodePoints(text));
    if (names.back().size() > kMaxKeyCharacters) {
      RefuseSchema(pointer,
                   StrCat("names of at most ", kMaxKeyCharacters,
                          " characters where there may be others"),
                   StrCat(names.back().size(), " characters"));
    }
  }
  std::sort(names.begin(), names.end());
  const ExpressionId rest = KeyRest(names, 0, names.size(), 0);
  return AsRule(
      source_.Sequence({source_.Text("\""), rest, source_.Text("\"")}),
      "other key of " + pointer);
}

// What may follow the first `depth` characters of names [begin, end), which
// these names share, in a key that is none of them.
ExpressionId JsonTexts::KeyRest(const std::vector<std::u32string>& names,
                                size_t begin, size_t end, size_t depth) {
  std::vector<ExpressionId> ways;
  std::vector<CodePointRange> named;
  if (names[begin].size() == depth) {
    ++begin;  // the key may not end here
  } else {
    ways.push_back(source_.Empty());
  }
  for (size_t next; begin < end; begin = next) {
    const char32_t c = names[begin][depth];
    for (next = begin; next < end && names[next][depth] == c;) ++next;
    named.push_back({c, c});
    ways.push_back(source_.Sequence({Character(CodePointSet({{c, c}})),
                                     KeyRest(names, begin, next, depth + 1)}));
  }
  const CodePointSet names_here(std::move(named));
  ways.push_back(
      source_.Sequence({Character(names_here.Complement()), AnyRest()}));
  return source_.Choice(std::move(ways));
}

}  // namespace tarn::grammar
