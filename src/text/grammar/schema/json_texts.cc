#include <algorithm>
#include <utility>

#include "core/error.h"
#include "text/grammar/readers.h"
#include "text/grammar/schema/schema_reader.h"
#include "text/utf8.h"

namespace tarn::grammar {
namespace {

CodePointSet OneOf(std::string_view characters) {
  std::vector<CodePointRange> ranges;
  for (const char c : characters) {
    const auto code_point = static_cast<uint8_t>(c);
    ranges.push_back({code_point, code_point});
  }
  return CodePointSet(std::move(ranges));
}

// RFC 8259: what a string may hold as it is.
CodePointSet RawCharacters() {
  return CodePointSet({{0x20, kMaxCodePoint}}).Minus(OneOf("\"\\"));
}

// Characters that have an escape of one letter, and the letters.
constexpr std::string_view kEscaped = "\"\\\b\f\n\r\t";
constexpr std::string_view kEscapeLetters = "\"\\bfnrt";

}  // namespace

template <typename Make>
ExpressionId JsonTexts::SharedRule(Shared which, const char* name, bool keep,
                                   const Make& make) {
  if (shared_[which] < 0) {
    const RuleId rule = source_.AddRule(name, -1, keep);
    shared_[which] = rule;  // before its body, which may call it
    const ExpressionId body = make();
    source_.rules[rule].body = body;
  }
  return source_.Call(shared_[which]);
}

// As json.dumps and pretty printers write: bounded, so that a model cannot
// write white space for ever.
ExpressionId JsonTexts::Space() {
  if (!white_space_) return source_.Empty();
  return SharedRule(kSpace, "white space", false,
                    [&] { return Regex("(?: |\\n[ \\t]{0,20})?"); });
}

ExpressionId JsonTexts::Value() {
  return SharedRule(kValue, "value", true, [&] {
    const ExpressionId members =
        source_.Add({.kind = Expression::kMembers,
                     .children = {Comma(), Member(String(), Value())},
                     .tail = true});
    const ExpressionId items = source_.Add({.kind = Expression::kMembers,
                                            .children = {Comma(), Value()},
                                            .tail = true});
    return source_.Choice({Between("{", members, "}"), Between("[", items, "]"),
                           String(), Number(), Regex("true|false|null")});
  });
}

ExpressionId JsonTexts::String() {
  return SharedRule(kString, "string", true, [&] {
    return source_.Sequence(
        {source_.Text("\""),
         source_.Repeat(Regex("[^\"\\\\\\x00-\\x1f]|\\\\(?:[\"\\\\/bfnrt]|"
                              "u(?:[0-9a-ce-fA-CE-F][0-9a-fA-F]{3}|"
                              "[dD][0-7][0-9a-fA-F]{2}|"
                              "[dD][89abAB][0-9a-fA-F]{2}\\\\u[dD]"
                              "[c-fC-F][0-9a-fA-F]{2}))"),
                        0, kUnbounded),
         source_.Text("\"")});
  });
}

ExpressionId JsonTexts::AnyCharacter() {
  return SharedRule(kCharacter, "character", true, [&] {
    return Regex(
        "[^\"\\\\\\x00-\\x1f]|\\\\(?:[\"\\\\/bfnrt]|"
        "u(?:[0-9a-ce-fA-CE-F][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}|"
        "[dD][89abAB][0-9a-fA-F]{2}\\\\u[dD][c-fC-F][0-9a-fA-F]{2}))");
  });
}

ExpressionId JsonTexts::Integer() {
  return SharedRule(kInteger, "integer", false, [&] {
    return Regex(short_numbers_ ? "0|-?[1-9][0-9]{0,17}" : "0|-?[1-9][0-9]*");
  });
}

ExpressionId JsonTexts::Number() {
  return SharedRule(kNumber, "number", false, [&] {
    return Regex(short_numbers_
                     ? "-?(?:0|[1-9][0-9]{0,17})(?:\\.[0-9]{1,17})?"
                       "(?:[eE][+-]?[0-9]{1,2})?"
                     : "-?(?:0|[1-9][0-9]*)(?:\\.[0-9]+)?(?:[eE][+-]?[0-9]+)?");
  });
}

// After the backslash: of characters that need an escape.
ExpressionId JsonTexts::Escape(const CodePointSet& set) {
  std::vector<ExpressionId> ways;
  std::string letters;
  CodePointSet rest = set.Intersection(CodePointSet({{0, 0x1F}}));
  for (size_t i = 0; i < kEscaped.size(); ++i) {
    if (set.Contains(static_cast<uint8_t>(kEscaped[i]))) {
      letters.push_back(kEscapeLetters[i]);
    }
  }
  if (!letters.empty()) ways.push_back(source_.Set(OneOf(letters)));
  rest = rest.Minus(OneOf(kEscaped));
  for (const uint32_t high : {0u, 1u}) {
    std::string digits;
    for (uint32_t low = 0; low < 16; ++low) {
      if (!rest.Contains(16 * high + low)) continue;
      digits.push_back("0123456789abcdef"[low]);
      if (low >= 10) digits.push_back("0123456789ABCDEF"[low]);
    }
    if (digits.empty()) continue;
    ways.push_back(source_.Sequence({source_.Text(high == 0 ? "u000" : "u001"),
                                     source_.Set(OneOf(digits))}));
  }
  return ways.empty() ? source_.Nothing() : source_.Choice(std::move(ways));
}

ExpressionId JsonTexts::AnyEscape() {
  return SharedRule(kEscape, "escape", true,
                    [&] { return Escape(CodePointSet::All()); });
}

ExpressionId JsonTexts::AnyRest() {
  return SharedRule(kRest, "rest of a key", true, [&] {
    return source_.Repeat(Character(CodePointSet::All()), 0, kUnbounded);
  });
}

ExpressionId JsonTexts::Character(const CodePointSet& set) {
  const CodePointSet raw = set.Intersection(RawCharacters());
  const CodePointSet escaped = set.Minus(RawCharacters());
  std::vector<ExpressionId> ways;
  if (!raw.empty()) ways.push_back(source_.Set(raw));
  if (!escaped.empty()) {
    const bool all = escaped.ranges() == RawCharacters().Complement().ranges();
    ways.push_back(source_.Sequence(
        {source_.Text("\\"), all ? AnyEscape() : Escape(escaped)}));
  }
  return ways.empty() ? source_.Nothing() : source_.Choice(std::move(ways));
}

ExpressionId JsonTexts::Regex(std::string_view pattern) {
  return ReadRegex(source_, pattern, {.where = "pattern"});
}

ExpressionId JsonTexts::QuotedRegex(std::string_view pattern,
                                    const std::string& where, bool search) {
  const ExpressionId body = ReadRegex(
      source_, pattern,
      {where, search, [&](const CodePointSet& set) { return Character(set); }});
  return source_.Sequence({source_.Text("\""), body, source_.Text("\"")});
}

ExpressionId JsonTexts::Between(const char* open, ExpressionId inner,
                                const char* close) {
  std::vector<ExpressionId> parts{source_.Text(open), Space()};
  if (inner >= 0) parts.insert(parts.end(), {inner, Space()});
  parts.push_back(source_.Text(close));
  return source_.Sequence(std::move(parts));
}

ExpressionId JsonTexts::Comma() {
  return source_.Sequence({source_.Text(","), Space()});
}

ExpressionId JsonTexts::Member(ExpressionId key, ExpressionId value) {
  return source_.Sequence({key, source_.Text(":"), Space(), value});
}

ExpressionId JsonTexts::AsRule(ExpressionId body, const std::string& name) {
  if (source_.expressions[body].kind == Expression::kRule) return body;
  const RuleId rule = source_.AddRule(name, body);
  source_.rules[rule].where = name;
  return source_.Call(rule);
}

}  // namespace tarn::grammar
