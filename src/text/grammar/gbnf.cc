// llama.cpp's notation for grammars: rules "name ::= alternatives".
#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "core/error.h"
#include "text/grammar/limits.h"
#include "text/grammar/readers.h"
#include "text/utf8.h"

namespace tarn::grammar {
namespace {

bool IsNameByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (c >= '0' && c <= '9') || c == '-' || c == '_';
}

std::optional<uint32_t> HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

class GbnfReader {
 public:
  explicit GbnfReader(std::string_view text) : text_(text) {}

  Source Read() {
    RuleNamed("root", 0);
    SkipSpace(true);
    while (at_ < text_.size()) ReadRule();
    for (size_t r = 0; r < source_.rules.size(); ++r) {
      if (source_.rules[r].body >= 0) continue;
      if (r == 0) {
        throw FormatError("grammar", "a rule root", "none of this name");
      }
      Refuse(used_[r], "a rule that is defined", source_.rules[r].name);
    }
    return std::move(source_);
  }

 private:
  std::string Place(size_t at) const {
    const std::string_view before = text_.substr(0, at);
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const size_t begin = before.rfind('\n');
    const size_t column = begin == before.npos ? at + 1 : at - begin;
    return StrCat("line ", line, ", column ", column);
  }
  [[noreturn]] void Refuse(size_t at, const std::string& wanted,
                           const std::string& given) const {
    throw FormatError("grammar: " + Place(at), wanted, given);
  }
  [[noreturn]] void RefuseHere(const std::string& wanted) const {
    if (at_ >= text_.size()) Refuse(at_, wanted, "the end");
    const auto c = static_cast<uint8_t>(text_[at_]);
    if (c == '\n' || c == '\r') Refuse(at_, wanted, "the end of the line");
    constexpr char kDigits[] = "0123456789abcdef";
    if (c < 0x20 || c >= 0x7F) {
      Refuse(at_, wanted, StrCat("byte 0x", kDigits[c >> 4], kDigits[c & 15]));
    }
    Refuse(at_, wanted, StrCat("'", text_[at_], "'"));
  }
  bool Is(char c) const { return at_ < text_.size() && text_[at_] == c; }

  // A rule outside of parentheses ends with its line.
  void SkipSpace(bool lines) {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        while (at_ < text_.size() && !Is('\n') && !Is('\r')) ++at_;
      } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
        ++at_;
      } else {
        return;
      }
    }
  }

  std::string_view Name() {
    const size_t begin = at_;
    while (at_ < text_.size() && IsNameByte(text_[at_])) ++at_;
    if (at_ == begin) RefuseHere("the name of a rule");
    return text_.substr(begin, at_ - begin);
  }
  RuleId RuleNamed(std::string_view name, size_t at) {
    const auto [found, added] = ids_.try_emplace(std::string(name), 0);
    if (added) {
      found->second = source_.AddRule(found->first);
      used_.push_back(at);
    }
    return found->second;
  }

  void ReadRule() {
    const size_t begin = at_;
    const RuleId id = RuleNamed(Name(), begin);
    if (source_.rules[id].body >= 0) {
      Refuse(begin, "one definition of each rule",
             StrCat("another of ", source_.rules[id].name));
    }
    source_.rules[id].where = Place(begin);
    SkipSpace(false);
    if (text_.substr(at_, 3) != "::=") RefuseHere("::=");
    at_ += 3;
    SkipSpace(true);
    const ExpressionId body = Alternatives(false);
    if (at_ < text_.size() && !Is('\n') && !Is('\r')) {
      RefuseHere("the end of the rule");
    }
    source_.rules[id].body = body;
    SkipSpace(true);
  }

  ExpressionId Alternatives(bool nested) {
    std::vector<ExpressionId> alternatives{SequenceOf(nested)};
    while (Is('|')) {
      ++at_;
      SkipSpace(true);
      alternatives.push_back(SequenceOf(nested));
    }
    return source_.Choice(std::move(alternatives));
  }

  ExpressionId SequenceOf(bool nested) {
    std::vector<ExpressionId> parts;
    int64_t repeats = 0;  // of the last part
    while (at_ < text_.size()) {
      if (Is('*') || Is('+') || Is('?') || Is('{')) {
        if (parts.empty()) RefuseHere("something to repeat");
        if (++repeats > kMaxNesting) {
          RefuseHere(StrCat("at most ", kMaxNesting, " repetitions of one"));
        }
        parts.back() = Repetition(parts.back(), nested);
      } else if (const auto part = Item()) {
        parts.push_back(*part);
        repeats = 0;
      } else {
        break;
      }
      SkipSpace(nested);
    }
    return source_.Sequence(std::move(parts));
  }

  // Nothing where no item begins.
  std::optional<ExpressionId> Item() {
    switch (text_[at_]) {
      case '"':
        return Literal();
      case '[':
        return Class();
      case '.':
        ++at_;
        return source_.Set(CodePointSet::All());
      case '(': {
        if (++nesting_ > kMaxNesting) {
          RefuseHere(StrCat("at most ", kMaxNesting, " levels of groups"));
        }
        ++at_;
        SkipSpace(true);
        const ExpressionId group = Alternatives(true);
        if (!Is(')')) RefuseHere("')'");
        ++at_;
        --nesting_;
        return group;
      }
      case '<':
      case '!':
        RefuseHere("characters and rules: tokens are not supported");
      default:
        if (!IsNameByte(text_[at_])) return std::nullopt;
        const size_t begin = at_;
        return source_.Call(RuleNamed(Name(), begin));
    }
  }

  ExpressionId Literal() {
    std::string text;
    for (++at_; !Is('"');) AppendUtf8(Character("'\"'"), text);
    ++at_;
    return source_.Text(std::move(text));
  }

  ExpressionId Class() {
    const size_t begin = at_++;
    const bool negated = Is('^');
    if (negated) ++at_;
    std::vector<CodePointRange> ranges;
    while (!Is(']')) {
      const size_t range = at_;
      const uint32_t first = Character("']'");
      uint32_t last = first;
      if (Is('-') && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        last = Character("']'");
      }
      if (last < first) {
        Refuse(range, "a range from a smaller to a larger character",
               "the reverse");
      }
      ranges.push_back({first, last});
    }
    ++at_;
    if (ranges.empty()) Refuse(begin, "a class with a character", "none");
    const CodePointSet set{std::move(ranges)};
    return source_.Set(negated ? set.Complement() : set);
  }

  // One character or escape of a literal or class, which `end` ends.
  uint32_t Character(const char* end) {
    if (at_ >= text_.size()) RefuseHere(end);
    if (!Is('\\')) {
      const Utf8Head head = ReadUtf8(text_.substr(at_));
      if (head.kind != Utf8Head::kValid) RefuseHere("valid UTF-8");
      at_ += head.bytes;
      return head.code_point;
    }
    const size_t begin = at_++;
    const char escape = at_ < text_.size() ? text_[at_++] : '\0';
    switch (escape) {
      case 'x':
        return Hex(begin, 2);
      case 'u':
        return Hex(begin, 4);
      case 'U':
        return Hex(begin, 8);
      case 't':
        return '\t';
      case 'r':
        return '\r';
      case 'n':
        return '\n';
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '^':
        return static_cast<uint32_t>(escape);
      default:
        at_ = begin;
        RefuseHere(
            "an escape: \\x, \\u, \\U, \\t, \\r, \\n, or one of "
            "\\ \" [ ] - ^ after the backslash");
    }
  }
  uint32_t Hex(size_t begin, int digits) {
    uint32_t value = 0;
    for (int i = 0; i < digits; ++i) {
      const auto digit =
          at_ < text_.size() ? HexDigit(text_[at_]) : std::nullopt;
      if (!digit) RefuseHere(StrCat(digits, " hexadecimal digits"));
      value = value << 4 | *digit;
      ++at_;
    }
    if (!IsScalarValue(value)) {
      Refuse(begin, "a Unicode scalar value", "another number");
    }
    return value;
  }

  ExpressionId Repetition(ExpressionId part, bool nested) {
    const char sign = text_[at_++];
    if (sign == '*') return source_.Repeat(part, 0, kUnbounded);
    if (sign == '+') return source_.Repeat(part, 1, kUnbounded);
    if (sign == '?') return source_.Repeat(part, 0, 1);
    const size_t begin = at_ - 1;
    SkipSpace(nested);
    const int64_t low = Count(nested);
    int64_t high = low;
    if (Is(',')) {
      ++at_;
      SkipSpace(nested);
      high = Is('}') ? kUnbounded : Count(nested);
    }
    if (!Is('}')) RefuseHere("'}'");
    ++at_;
    if (high != kUnbounded && high < low) {
      Refuse(begin, "a repetition from a smaller to a larger number",
             "the reverse");
    }
    return source_.Repeat(part, low, high);
  }
  int64_t Count(bool nested) {
    const size_t begin = at_;
    int64_t count = 0;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      count = 10 * count + (text_[at_++] - '0');
      if (count > kMaxGrammarNodes) {
        Refuse(begin, StrCat("at most ", kMaxGrammarNodes, " repetitions"),
               "more");
      }
    }
    if (at_ == begin) RefuseHere("a number");
    SkipSpace(nested);
    return count;
  }

  const std::string_view text_;
  size_t at_ = 0;
  int64_t nesting_ = 0;
  Source source_;
  std::map<std::string, RuleId> ids_;
  std::vector<size_t> used_;  // where each rule is named first
};

}  // namespace

Source ReadGbnf(std::string_view text) { return GbnfReader(text).Read(); }

}  // namespace tarn::grammar
