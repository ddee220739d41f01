#include "text/template/parse/lexer.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "core/numbers/number_text.h"
#include "core/text.h"
#include "text/template/values/python_text.h"
#include "text/utf8.h"

namespace tarn::jinja {
namespace {

// "\r\n" and "\r" become "\n", and one newline at the end goes.
std::string Normalized(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text += source[i];
    } else if (i + 1 == source.size() || source[i + 1] != '\n') {
      text += '\n';
    }
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

bool Digit(char c) { return c >= '0' && c <= '9'; }

size_t SpaceEnd(std::string_view text, size_t at) {
  while (at < text.size()) {
    const CodePoint c = ReadCodePoint(text.substr(at));
    if (!IsSpace(c.value)) break;
    at += c.bytes;
  }
  return at;
}

size_t SpaceBegin(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    const size_t before = Before(text, end);
    if (!IsSpace(ReadCodePoint(text.substr(before)).value)) break;
    end = before;
  }
  return end;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : text_(Normalized(source)) {}

  std::vector<Token> All() {
    while (at_ < text_.size()) Root();
    Add(TokenType::kEnd, text_.size());
    return std::move(tokens_);
  }

 private:
  std::string_view Rest() const { return std::string_view(text_).substr(at_); }
  bool Starts(std::string_view with) const { return Rest().starts_with(with); }

  // The position of a byte; calls come with ascending bytes, so that a whole
  // source is read once.
  Position At(size_t byte) {
    for (; counted_ < byte; ++counted_) {
      if (text_[counted_] == '\n') {
        ++line_;
        line_begin_ = counted_ + 1;
      }
    }
    return {line_, static_cast<uint32_t>(byte - line_begin_ + 1)};
  }

  Token& Add(TokenType type, size_t byte, std::string text = {}) {
    Token token;
    token.type = type;
    token.at = At(byte);
    token.text = std::move(text);
    tokens_.push_back(std::move(token));
    return tokens_.back();
  }

  // Where the next tag begins; size() if there is none.
  size_t NextTag() const {
    for (size_t at = at_; (at = text_.find('{', at)) != text_.npos; ++at) {
      if (at + 1 < text_.size() &&
          (text_[at + 1] == '{' || text_[at + 1] == '%' ||
           text_[at + 1] == '#')) {
        return at;
      }
    }
    return text_.size();
  }

  // The data before a tag, as its sign and lstrip_blocks leave it.
  std::string_view Stripped(std::string_view data, char sign,
                            bool variable) const {
    if (sign == '-') return data.substr(0, SpaceBegin(data));
    if (sign == '+' || variable) return data;
    const size_t newline = data.rfind('\n');
    const size_t line = newline == data.npos ? 0 : newline + 1;
    if ((line > 0 || line_starting_) && SpaceEnd(data, line) == data.size()) {
      return data.substr(0, line);
    }
    return data;
  }

  void AddData(size_t begin, std::string_view data) {
    if (!data.empty()) Add(TokenType::kData, begin, std::string(data));
  }

  void Root() {
    const size_t tag = NextTag(), begin = at_;
    const std::string_view data = Rest().substr(0, tag - begin);
    at_ = tag;
    if (tag == text_.size()) return AddData(begin, data);
    const char type = text_[tag + 1];
    at_ += 2;
    const char sign = at_ < text_.size() ? text_[at_] : '\0';
    const bool has_sign = sign == '-' || sign == '+';
    AddData(begin, Stripped(data, sign, type == '{'));
    if (has_sign) ++at_;
    if (type == '#') return Comment(tag);
    if (type == '%' && RawBegin()) return Raw(tag);
    Add(type == '{' ? TokenType::kVariableBegin : TokenType::kBlockBegin, tag);
    Tag(type == '{');
  }

  void After(bool strip, bool trim) {
    const size_t end = at_;
    if (strip) {
      at_ = SpaceEnd(text_, at_);
    } else if (trim && at_ < text_.size() && text_[at_] == '\n') {
      ++at_;
    }
    line_starting_ = at_ > end && text_[at_ - 1] == '\n';
  }

  void Comment(size_t tag) {
    const size_t end = text_.find("#}", at_);
    if (end == text_.npos) FailAt(At(tag), "'#}' after a comment", "no such");
    const char sign = end > at_ ? text_[end - 1] : '\0';
    at_ = end + 2;
    After(sign == '-', sign != '+');
  }

  // Takes "raw %}" after the beginning of a block.
  bool RawBegin() {
    size_t at = SpaceEnd(text_, at_);
    const std::string_view text = text_;
    if (!text.substr(at).starts_with("raw")) return false;
    at = SpaceEnd(text, at + 3);
    if (text.substr(at).starts_with("-%}")) {
      at_ = SpaceEnd(text, at + 3);
      return true;
    }
    if (!text.substr(at).starts_with("%}")) return false;
    at_ = at + 2;
    return true;
  }

  void Raw(size_t tag) {
    const std::string_view text = text_;
    line_starting_ = text_[at_ - 1] == '\n';
    for (size_t end = at_; (end = text.find("{%", end)) != text.npos; ++end) {
      size_t at = end + 2;
      const char sign = at < text.size() ? text[at] : '\0';
      if (sign == '-' || sign == '+') ++at;
      at = SpaceEnd(text, at);
      if (!text.substr(at).starts_with("endraw")) continue;
      at = SpaceEnd(text, at + 6);
      const char last = at < text.size() ? text[at] : '\0';
      if (last == '-' || last == '+') ++at;
      if (!text.substr(at).starts_with("%}")) continue;
      AddData(at_, Stripped(text.substr(at_, end - at_), sign, false));
      at_ = at + 2;
      return After(last == '-', last != '+');
    }
    FailAt(At(tag), "'{% endraw %}' after '{% raw %}'", "no such");
  }

  // Tokens up to the end of a tag.
  void Tag(bool variable) {
    const Position begin = tokens_.back().at;
    std::string open;  // brackets, by what closes them
    const std::string_view end = variable ? "}}" : "%}";
    while (true) {
      at_ = SpaceEnd(text_, at_);
      if (at_ == text_.size()) {
        FailAt(begin, StrCat("'", end, "' after a tag"), "no such");
      }
      if (open.empty()) {
        const char sign = text_[at_];
        const bool has_sign = sign == '-' || (sign == '+' && !variable);
        if (Rest().substr(has_sign).starts_with(end)) {
          Add(variable ? TokenType::kVariableEnd : TokenType::kBlockEnd, at_);
          at_ += 2 + has_sign;
          return After(sign == '-', !variable && !has_sign);
        }
      }
      One(open);
    }
  }

  void One(std::string& open) {
    const char c = text_[at_];
    if (Digit(c)) return Number();
    if (c == '\'' || c == '"') return String(c);
    const CodePoint first = ReadCodePoint(Rest());
    if (IsIdentifierStart(first.value)) return Name();
    Operator(open);
  }

  void Name() {
    size_t end = at_;
    while (end < text_.size()) {
      const CodePoint c = ReadCodePoint(std::string_view(text_).substr(end));
      if (!IsIdentifierPart(c.value)) break;
      end += c.bytes;
    }
    Add(TokenType::kName, at_, text_.substr(at_, end - at_));
    at_ = end;
  }

  // Digits with single underscores between them, from `at`.
  size_t DigitsEnd(size_t at) const {
    while (at < text_.size() &&
           (Digit(text_[at]) || (text_[at] == '_' && at + 1 < text_.size() &&
                                 Digit(text_[at + 1])))) {
      ++at;
    }
    return at;
  }

  void Number() {
    const size_t begin = at_;
    size_t end = DigitsEnd(at_);
    bool real = false;
    const bool after_dot = begin > 0 && text_[begin - 1] == '.';
    if (!after_dot && end + 1 < text_.size() && text_[end] == '.' &&
        Digit(text_[end + 1])) {
      end = DigitsEnd(end + 1);
      real = true;
    }
    if (!after_dot && end < text_.size() && (text_[end] | 32) == 'e') {
      size_t digits = end + 1;
      if (digits < text_.size() &&
          (text_[digits] == '+' || text_[digits] == '-')) {
        ++digits;
      }
      if (digits < text_.size() && Digit(text_[digits])) {
        end = DigitsEnd(digits);
        real = true;
      }
    }
    int base = 10;
    if (!real && text_[begin] == '0') {
      const char mark = begin + 1 < text_.size() ? text_[begin + 1] | 32 : '\0';
      base = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
      if (base != 10) {
        end = begin + 2;
        while (end < text_.size() &&
               (std::isxdigit(static_cast<unsigned char>(text_[end])) != 0 ||
                text_[end] == '_')) {
          ++end;
        }
      } else {
        end = begin;
        while (end < text_.size() && (text_[end] == '0' || text_[end] == '_')) {
          ++end;
        }
      }
    }
    std::string digits = text_.substr(begin, end - begin);
    std::erase(digits, '_');
    Token& token =
        Add(real ? TokenType::kFloat : TokenType::kInteger, begin, digits);
    at_ = end;
    const char* first = token.text.data();
    const char* last = first + token.text.size();
    if (base != 10) first += 2;
    auto read = real ? FromChars(first, last, token.real)
                     : FromChars(first, last, token.integer, base);
    if (real && read.ec == std::errc::result_out_of_range) {
      const bool small = token.text.find("-") != std::string::npos;
      token.real = small ? 0.0 : HUGE_VAL;
      read.ec = std::errc();
    }
    if (read.ec != std::errc() || read.ptr != last) {
      FailAt(token.at, "a number of 64 bits", Quoted(token.text));
    }
  }

  void String(char quote) {
    const size_t begin = at_++;
    std::string value;
    while (true) {
      if (at_ >= text_.size()) {
        FailAt(At(begin), "a quote at the end of a string", "no such");
      }
      const char c = text_[at_++];
      if (c == quote) break;
      if (c == '\\' && at_ < text_.size()) {
        Escape(value);
      } else {
        value += c;
      }
    }
    Add(TokenType::kString, begin, std::move(value));
  }

  void Escape(std::string& value) {
    const size_t begin = at_ - 1;
    const char c = text_[at_++];
    constexpr std::string_view kFrom = "abfnrtv\\'\"",
                               kTo = "\a\b\f\n\r\t\v\\'\"";
    if (const size_t found = kFrom.find(c); found != kFrom.npos) {
      value += kTo[found];
    } else if (c == '\n') {
      // a line that continues
    } else if (c >= '0' && c <= '7') {
      uint32_t code = 0;
      --at_;
      for (int i = 0; i < 3 && at_ < text_.size() && text_[at_] >= '0' &&
                      text_[at_] <= '7';
           ++i) {
        code = code * 8 + static_cast<uint32_t>(text_[at_++] - '0');
      }
      AppendUtf8(code, value);
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t count = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      uint32_t code = 0;
      const char* first = text_.data() + at_;
      const char* last = text_.data() + std::min(text_.size(), at_ + count);
      const auto read = std::from_chars(first, last, code, 16);
      if (read.ptr != first + count || !IsScalarValue(code)) {
        FailAt(At(begin),
               StrCat("\\", c, " with ", count,
                      " hexadecimal digits of a character"),
               Quoted(text_.substr(begin, 2 + count)));
      }
      AppendUtf8(code, value);
      at_ += count;
    } else {
      value += '\\';
      value += c;
    }
  }

  void Operator(std::string& open) {
    constexpr std::string_view kDouble[] = {"//", "**", "==", "!=", ">=", "<="};
    constexpr std::string_view kSingle = "+-/*%~[](){}><=.:|,;";
    size_t bytes = 0;
    for (const std::string_view two : kDouble) {
      if (Starts(two)) bytes = 2;
    }
    const char c = text_[at_];
    if (bytes == 0 && kSingle.find(c) != kSingle.npos) bytes = 1;
    if (bytes == 0) {
      FailAt(At(at_), "an expression",
             Quoted(text_.substr(at_, ReadCodePoint(Rest()).bytes)));
    }
    if (bytes == 1 && (c == '(' || c == '[' || c == '{')) {
      open += c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (bytes == 1 && (c == ')' || c == ']' || c == '}')) {
      if (open.empty() || open.back() != c) {
        FailAt(At(at_),
               open.empty() ? "no closing bracket"
                            : Quoted(std::string_view(&open.back(), 1)),
               Quoted(std::string_view(&c, 1)));
      }
      open.pop_back();
    }
    Add(TokenType::kOperator, at_, text_.substr(at_, bytes));
    at_ += bytes;
  }

  const std::string text_;
  size_t at_ = 0;
  std::vector<Token> tokens_;
  bool line_starting_ = true;
  size_t counted_ = 0, line_begin_ = 0;
  uint32_t line_ = 1;
};

}  // namespace

std::vector<Token> Tokenize(std::string_view source) {
  return Lexer(source).All();
}

}  // namespace tarn::jinja
