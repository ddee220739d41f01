// ECMAScript's regular expressions over code points, as with its flag u,
// without what is not regular.
#include <algorithm>
#include <optional>
#include <utility>

#include "core/error.h"
#include "text/grammar/limits.h"
#include "text/grammar/readers.h"
#include "text/utf8.h"

namespace tarn::grammar {
namespace {

const CodePointSet& LineEnds() {
  static const CodePointSet set({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}});
  return set;
}

// The sets of \d, \w and \s; nothing for another letter.
std::optional<CodePointSet> ClassEscape(char letter) {
  CodePointSet set;
  switch (letter | 0x20) {
    case 'd':
      set = CodePointSet({{'0', '9'}});
      break;
    case 'w':
      set = CodePointSet({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
      break;
    case 's':  // ECMA-262, WhiteSpace and LineTerminator
      set = CodePointSet({{0x09, 0x0D},
                          {0x20, 0x20},
                          {0xA0, 0xA0},
                          {0x1680, 0x1680},
                          {0x2000, 0x200A},
                          {0x2028, 0x2029},
                          {0x202F, 0x202F},
                          {0x205F, 0x205F},
                          {0x3000, 0x3000},
                          {0xFEFF, 0xFEFF}});
      break;
    default:
      return std::nullopt;
  }
  return (letter & 0x20) != 0 ? set : set.Complement();
}

class RegexReader {
 public:
  RegexReader(Source& source, std::string_view text,
              const RegexOptions& options)
      : source_(source), text_(text), options_(options) {}

  ExpressionId Read() {
    const ExpressionId body = Alternatives(0);
    if (at_ < text_.size()) RefuseHere("an opened group before ')'");
    return body;
  }

 private:
  [[noreturn]] void Refuse(size_t at, const std::string& wanted,
                           const std::string& given) const {
    throw FormatError(StrCat(options_.where, ": byte ", at), wanted, given);
  }
  [[noreturn]] void RefuseHere(const std::string& wanted) const {
    Refuse(at_, wanted,
           at_ < text_.size() ? Excerpt(at_, 1) : std::string("the end"));
  }
  std::string Excerpt(size_t at, size_t bytes) const {
    return "'" + ReplaceInvalidUtf8(text_.substr(at, bytes)) + "'";
  }
  bool Is(char c) const { return at_ < text_.size() && text_[at_] == c; }
  bool Skip(std::string_view text) {
    if (text_.substr(at_, text.size()) != text) return false;
    at_ += text.size();
    return true;
  }

  ExpressionId Character(const CodePointSet& set) {
    return options_.character ? options_.character(set) : source_.Set(set);
  }
  ExpressionId Anything() {
    return source_.Repeat(Character(CodePointSet::All()), 0, kUnbounded);
  }

  ExpressionId Alternatives(int64_t nesting) {
    std::vector<ExpressionId> alternatives{Alternative(nesting)};
    while (Skip("|")) alternatives.push_back(Alternative(nesting));
    return source_.Choice(std::move(alternatives));
  }

  ExpressionId Alternative(int64_t nesting) {
    std::vector<ExpressionId> terms;
    const bool outer = nesting == 0;
    bool begins = false, ends = false;
    if (outer && Is('^')) {
      begins = true;
      ++at_;
    }
    while (at_ < text_.size() && !Is('|') && !Is(')')) {
      if (Is('^')) RefuseHere("^ at the beginning of the pattern alone");
      if (Is('$')) {
        if (!outer) RefuseHere("$ at the end of the pattern alone");
        ++at_;
        ends = true;
        if (at_ < text_.size() && !Is('|')) {
          Refuse(at_ - 1, "$ at the end of the pattern alone", "'$'");
        }
        break;
      }
      terms.push_back(Quantified(Atom(nesting)));
    }
    if (outer && options_.search) {
      if (!begins) terms.insert(terms.begin(), Anything());
      if (!ends) terms.push_back(Anything());
    }
    return source_.Sequence(std::move(terms));
  }

  ExpressionId Atom(int64_t nesting) {
    if (Is('(')) return Group(nesting);
    if (Is('[')) return Character(Class());
    if (Is('.')) {
      ++at_;
      return Character(LineEnds().Complement());
    }
    for (const char sign : std::string_view("*+?{}]")) {
      if (!Is(sign)) continue;
      RefuseHere(sign == ']' || sign == '}' ? "a backslash before the sign"
                                            : "something to repeat");
    }
    if (Is('\\')) return Character(Escape(false));
    const uint32_t code_point = PlainCharacter();
    return Character(CodePointSet({{code_point, code_point}}));
  }

  ExpressionId Group(int64_t nesting) {
    const size_t begin = at_++;
    if (nesting >= kMaxNesting) {
      Refuse(begin, StrCat("at most ", kMaxNesting, " levels of groups"),
             "more");
    }
    if (Is('?') && !Skip("?:")) {
      if (text_.substr(at_, 2) != "?<" || text_.substr(at_, 3) == "?<=" ||
          text_.substr(at_, 3) == "?<!") {
        Refuse(begin, "groups without assertions or flags", Excerpt(begin, 3));
      }
      at_ += 2;
      while (at_ < text_.size() && !Is('>')) ++at_;
      if (!Skip(">")) RefuseHere("'>'");
    }
    const ExpressionId group = Alternatives(nesting + 1);
    if (!Skip(")")) RefuseHere("')'");
    return group;
  }

  // Lazy and greedy repetitions match the same texts.
  ExpressionId Quantified(ExpressionId atom) {
    int64_t low = 0, high = kUnbounded;
    const size_t begin = at_;
    if (Skip("+")) {
      low = 1;
    } else if (Skip("?")) {
      high = 1;
    } else if (Skip("{")) {
      low = high = Count();
      if (Skip(",")) high = Is('}') ? kUnbounded : Count();
      if (!Skip("}")) RefuseHere("'}'");
      if (high != kUnbounded && high < low) {
        Refuse(begin, "a repetition from a smaller to a larger number",
               "the reverse");
      }
    } else if (!Skip("*")) {
      return atom;
    }
    Skip("?");
    if (Is('*') || Is('+') || Is('?') || Is('{')) {
      RefuseHere("something to repeat");
    }
    return source_.Repeat(atom, low, high);
  }
  int64_t Count() {
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
    return count;
  }

  uint32_t PlainCharacter() {
    if (at_ >= text_.size()) RefuseHere("a character");
    const Utf8Head head = ReadUtf8(text_.substr(at_));
    if (head.kind != Utf8Head::kValid) {
      Refuse(at_, "valid UTF-8", "another byte");
    }
    at_ += head.bytes;
    return head.code_point;
  }

  CodePointSet Class() {
    const size_t begin = at_++;
    const bool negated = Skip("^");
    CodePointSet set;
    std::vector<CodePointRange> ranges;
    while (!Is(']')) {
      if (at_ >= text_.size()) Refuse(begin, "a class that ends", "the end");
      const size_t first_at = at_;
      const CodePointSet first = ClassPart();
      if (!Is('-') || text_.substr(at_, 2) == "-]") {
        for (const CodePointRange& range : first.ranges()) {
          ranges.push_back(range);
        }
        continue;
      }
      ++at_;
      const CodePointSet last = ClassPart();
      const auto single = [](const CodePointSet& part) {
        return part.ranges().size() == 1 &&
               part.ranges()[0].first == part.ranges()[0].last;
      };
      if (!single(first) || !single(last) ||
          first.ranges()[0].first > last.ranges()[0].first) {
        Refuse(first_at, "a range from a smaller to a larger character",
               Excerpt(first_at, at_ - first_at));
      }
      ranges.push_back({first.ranges()[0].first, last.ranges()[0].first});
    }
    ++at_;
    set = CodePointSet(std::move(ranges));
    if (negated) set = set.Complement();
    if (set.empty()) Refuse(begin, "a class with a character", "none");
    return set;
  }
  CodePointSet ClassPart() {
    if (Is('\\')) return Escape(true);
    const uint32_t code_point = PlainCharacter();
    return CodePointSet({{code_point, code_point}});
  }

  CodePointSet Escape(bool in_class) {
    const size_t begin = at_++;
    if (at_ >= text_.size()) RefuseHere("an escape");
    const char letter = text_[at_];
    if (auto set = ClassEscape(letter)) {
      ++at_;
      return std::move(*set);
    }
    const auto one = [](uint32_t c) { return CodePointSet({{c, c}}); };
    // The letters and what they stand for.
    constexpr std::string_view kLetters = "tnvfr", kControls = "\t\n\v\f\r";
    if (const size_t i = kLetters.find(letter); i != kLetters.npos) {
      ++at_;
      return one(static_cast<uint8_t>(kControls[i]));
    }
    const char next = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
    if (letter == '0' && !(next >= '0' && next <= '9')) {
      ++at_;
      return one(0);
    }
    if (letter == 'b' && in_class) {
      ++at_;
      return one('\b');
    }
    if (letter == 'c' && ((next | 0x20) >= 'a' && (next | 0x20) <= 'z')) {
      at_ += 2;
      return one(static_cast<uint32_t>(next & 31));
    }
    if (letter == 'x' || letter == 'u') return one(HexEscape(begin));
    constexpr std::string_view kSigns = "^$\\.*+?()[]{}|/-";
    if (kSigns.find(letter) != kSigns.npos) {
      ++at_;
      return one(static_cast<uint8_t>(letter));
    }
    Refuse(begin,
           "an escape of a sign, a control, a code point or one of dDsSwW",
           Excerpt(begin, 2));
  }

  // \xHH, \uHHHH, a pair of these for a surrogate pair, \u{H...}.
  uint32_t HexEscape(size_t begin) {
    const bool is_short = text_[at_++] == 'x';
    uint32_t value = 0;
    if (!is_short && Skip("{")) {
      int digits = 0;
      for (; !Is('}'); ++digits) {
        value = value << 4 | HexAt(at_);
        ++at_;
        if (value > kMaxCodePoint) break;
      }
      if (digits == 0 || !Skip("}")) RefuseHere("a code point in braces");
    } else {
      value = HexDigits(is_short ? 2 : 4);
      const bool high = value >= 0xD800 && value <= 0xDBFF;
      if (high && Skip("\\u")) {
        const uint32_t low = HexDigits(4);
        if (low < 0xDC00 || low > 0xDFFF) {
          Refuse(begin, "a pair of surrogates", "another pair");
        }
        value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
      }
    }
    if (!IsScalarValue(value)) {
      Refuse(begin, "a Unicode scalar value", "another number");
    }
    return value;
  }
  uint32_t HexDigits(int digits) {
    uint32_t value = 0;
    for (int i = 0; i < digits; ++i) value = value << 4 | HexAt(at_++);
    return value;
  }
  uint32_t HexAt(size_t at) const {
    const char c = at < text_.size() ? text_[at] : '\0';
    if (c >= '0' && c <= '9') return static_cast<uint32_t>(c - '0');
    const char lower = static_cast<char>(c | 0x20);
    if (lower >= 'a' && lower <= 'f') {
      return static_cast<uint32_t>(lower - 'a' + 10);
    }
    Refuse(std::min(at, text_.size()), "a hexadecimal digit",
           at < text_.size() ? Excerpt(at, 1) : "the end");
  }

  Source& source_;
  const std::string_view text_;
  const RegexOptions& options_;
  size_t at_ = 0;
};

}  // namespace

ExpressionId ReadRegex(Source& source, std::string_view pattern,
                       const RegexOptions& options) {
  return RegexReader(source, pattern, options).Read();
}

}  // namespace tarn::grammar
