// str.format and the operator % of texts.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>

#include "core/text.h"
#include "text/template/interpreter.h"
#include "text/template/values/python_text.h"
#include "text/utf8.h"

namespace tarn::jinja {
namespace {

constexpr int64_t kMaxWidth = 10'000;

// [[fill]align][sign][#][0][width][,][.precision][type]
struct Spec {
  std::string fill = " ";
  char align = '\0', sign = '-', type = '\0';
  bool comma = false, alternate = false;
  int64_t width = 0, precision = -1;
};

int64_t ReadWidth(std::string_view text, size_t* at) {
  int64_t number = -1;
  while (*at < text.size() && text[*at] >= '0' && text[*at] <= '9') {
    number = std::max<int64_t>(number, 0) * 10 + (text[(*at)++] - '0');
    if (number > kMaxWidth) {
      Fail(StrCat("a width of at most ", kMaxWidth), "more");
    }
  }
  return number;
}

Spec ReadSpec(std::string_view text) {
  Spec spec;
  size_t at = 0;
  constexpr std::string_view kAligns = "<>=^";
  const auto align = [&](size_t i) {
    return i < text.size() && kAligns.find(text[i]) != kAligns.npos;
  };
  if (!text.empty()) {
    const size_t first = ReadCodePoint(text).bytes;
    if (align(first)) {
      spec.fill = std::string(text.substr(0, first));
      spec.align = text[first];
      at = first + 1;
    } else if (align(0)) {
      spec.align = text[0];
      at = 1;
    }
  }
  const auto take = [&](char c) {
    const bool found = at < text.size() && text[at] == c;
    at += found;
    return found;
  };
  for (const char sign : {'+', '-', ' '}) {
    if (take(sign)) {
      spec.sign = sign;
      break;
    }
  }
  spec.alternate = take('#');
  if (take('0') && spec.align == '\0') {
    spec.fill = "0";
    spec.align = '=';
  }
  spec.width = std::max<int64_t>(ReadWidth(text, &at), 0);
  spec.comma = take(',');
  if (take('.')) {
    spec.precision = ReadWidth(text, &at);
    if (spec.precision < 0) Fail("a precision after '.'", Quoted(text));
  }
  if (at < text.size()) spec.type = text[at++];
  if (at != text.size()) Fail("a format that is supported", Quoted(text));
  return spec;
}

// Digits of a number without its sign.
std::string Digits(const Value& value, const Spec& spec) {
  const double* real = value.If<double>();
  char type = spec.type;
  const bool whole = type == 'd' || type == 'x' || type == 'X' || type == 'o' ||
                     type == 'b' || (type == '\0' && real == nullptr);
  if (whole) {
    if (real != nullptr)
      Fail("a whole number for this format", Describe(value));
    if (spec.precision >= 0) Fail("no precision of a whole number", "one");
    const int64_t* number = value.If<int64_t>();
    const int64_t given = number != nullptr ? *number : *value.If<bool>();
    const uint64_t magnitude = given < 0
                                   ? uint64_t{0} - static_cast<uint64_t>(given)
                                   : static_cast<uint64_t>(given);
    char buffer[70];
    const int base = type == 'x' || type == 'X' ? 16
                     : type == 'o'              ? 8
                     : type == 'b'              ? 2
                                                : 10;
    const auto end =
        std::to_chars(buffer, buffer + sizeof buffer, magnitude, base);
    std::string digits(buffer, end.ptr);
    if (type == 'X') {
      for (char& c : digits) c = static_cast<char>(std::toupper(c));
    }
    if (spec.alternate && base != 10) digits = std::string{'0', type} + digits;
    return digits;
  }
  const int64_t* number = value.If<int64_t>();
  double magnitude =
      std::fabs(real != nullptr     ? *real
                : number != nullptr ? static_cast<double>(*number)
                                    : static_cast<double>(*value.If<bool>()));
  if (std::isnan(magnitude)) return "nan";
  if (std::isinf(magnitude)) return "inf";
  if (type == '\0' && spec.precision < 0) return FloatText(magnitude);
  constexpr std::string_view kTypes = "fFeEgG%";
  if (type == '\0' || kTypes.find(type) == kTypes.npos) {
    Fail("a format of numbers that is supported",
         type == '\0' ? "a precision without a type"
                      : Quoted(std::string(1, type)));
  }
  const bool percent = type == '%';
  if (percent) magnitude *= 100;
  const int64_t precision = spec.precision < 0 ? 6 : spec.precision;
  std::string text(512 + static_cast<size_t>(precision), '\0');
  const char format[] = {'%', '.', '*', percent ? 'f' : type, '\0'};
  text.resize(static_cast<size_t>(
      std::snprintf(text.data(), text.size(), format,
                    static_cast<int>(precision), magnitude)));
  return percent ? text + "%" : text;
}

std::string Grouped(const std::string& digits) {
  const size_t whole =
      std::min(digits.find_first_not_of("0123456789"), digits.size());
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i != 0 && i < whole && (whole - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

bool Negative(const Value& value) {
  if (const double* real = value.If<double>()) return std::signbit(*real);
  const int64_t* number = value.If<int64_t>();
  return number != nullptr && *number < 0;
}

void Pad(TextBuilder& out, const std::string& prefix, const MarkedText& text,
         const Spec& spec, char align) {
  const auto size =
      static_cast<int64_t>(prefix.size() + CountCharacters(text.text()));
  const int64_t missing = std::max<int64_t>(spec.width - size, 0);
  const int64_t left = align == '>' || align == '=' ? missing
                       : align == '^'               ? missing / 2
                                                    : 0;
  if (align == '=') out.Append(prefix);
  for (int64_t i = 0; i < left; ++i) out.Append(spec.fill);
  if (align != '=') out.Append(prefix);
  out.Append(text);
  for (int64_t i = left; i < missing; ++i) out.Append(spec.fill);
}

void AppendNumber(TextBuilder& out, const Value& value, const Spec& spec) {
  std::string digits = Digits(value, spec);
  if (spec.comma) digits = Grouped(digits);
  const std::string sign = Negative(value)    ? "-"
                           : spec.sign == '+' ? "+"
                           : spec.sign == ' ' ? " "
                                              : "";
  Pad(out, sign, MarkedText(digits, false), spec,
      spec.align == '\0' ? '>' : spec.align);
}

void AppendFormatted(Machine& machine, TextBuilder& out, const Value& value,
                     const std::string& format) {
  if (format.empty()) return AppendStr(out, value);
  const Spec spec = ReadSpec(format);
  const bool flag = value.If<bool>() != nullptr && spec.type == '\0';
  if (value.number() && !flag) return AppendNumber(out, value, spec);
  if ((value.text() == nullptr && !flag) ||
      (spec.type != '\0' && spec.type != 's') || spec.align == '=') {
    Fail("a format for the value",
         StrCat(Quoted(format), " for ", Describe(value)));
  }
  Budget& budget = machine.budget();
  MarkedText text = Str(budget, value);
  if (spec.precision >= 0) {
    text.Truncate(ByteOffset(text.text(), IsAscii(text.text()),
                             static_cast<size_t>(spec.precision)));
  }
  Pad(out, "", text, spec, spec.align == '\0' ? '<' : spec.align);
}

// "name.attribute[item]" of a replacement field.
Value Field(Machine& machine, std::string_view field,
            const Arguments& arguments, int64_t* automatic) {
  const size_t end = std::min(field.find_first_of(".["), field.size());
  const std::string_view name = field.substr(0, end);
  Value value;
  int64_t index = 0;
  bool found = false;
  if (name.empty() || ReadInteger(name, 10, &index)) {
    if (name.empty()) index = (*automatic)++;
    if (index >= 0 &&
        static_cast<size_t>(index) < arguments.positional.size()) {
      value = arguments.positional[static_cast<size_t>(index)];
      found = true;
    }
  } else {
    for (const auto& [own, held] : arguments.named) {
      if (own == name) {
        value = held;
        found = true;
      }
    }
  }
  if (!found) Fail("an argument for each field of format", Quoted(field));
  size_t at = end;
  while (at < field.size()) {
    if (field[at] == '.') {
      const size_t next =
          std::min(field.find_first_of(".[", at + 1), field.size());
      value =
          Attribute(machine, value,
                    machine.MakeString(field.substr(at + 1, next - at - 1)));
      at = next;
    } else {
      const size_t close = field.find(']', at);
      if (close == field.npos) Fail("']' in a field of format", Quoted(field));
      const std::string_view key = field.substr(at + 1, close - at - 1);
      value = ReadInteger(key, 10, &index)
                  ? Item(machine, value, index)
                  : Item(machine, value, machine.MakeString(key));
      at = close + 1;
    }
  }
  return value;
}

}  // namespace

MarkedText FormatText(Machine& machine, const MarkedText& format,
                      const Arguments& arguments) {
  const std::string_view bytes = format.text();
  TextBuilder out(&machine.budget());
  int64_t automatic = 0;
  for (size_t at = 0; at < bytes.size();) {
    const size_t brace = std::min(bytes.find_first_of("{}", at), bytes.size());
    out.Append(format, at, brace);
    at = brace;
    if (at == bytes.size()) break;
    if (at + 1 < bytes.size() && bytes[at + 1] == bytes[at]) {
      out.Append(format, at, at + 1);
      at += 2;
      continue;
    }
    const size_t close = bytes.find('}', at);
    if (bytes[at] == '}' || close == bytes.npos) {
      Fail("braces of format in pairs", Quoted(bytes.substr(at)));
    }
    std::string_view field = bytes.substr(at + 1, close - at - 1);
    if (field.find('{') != field.npos) {
      Fail("a field of format without braces", Quoted(field));
    }
    std::string spec;
    if (const size_t colon = field.find(':'); colon != field.npos) {
      spec = std::string(field.substr(colon + 1));
      field = field.substr(0, colon);
    }
    char conversion = '\0';
    if (const size_t mark = field.find('!'); mark != field.npos) {
      if (mark + 2 != field.size()) Fail("!s or !r in a field", Quoted(field));
      conversion = field[mark + 1];
      field = field.substr(0, mark);
    }
    Value value = Field(machine, field, arguments, &automatic);
    if (conversion != '\0') {
      if (conversion != 's' && conversion != 'r') {
        Fail("!s or !r in a field", Quoted(std::string(1, conversion)));
      }
      TextBuilder text(&machine.budget());
      conversion == 'r' ? AppendRepr(text, value) : AppendStr(text, value);
      value = machine.MakeString(text.Take());
    }
    AppendFormatted(machine, out, value, spec);
    at = close + 1;
  }
  return out.Take();
}

MarkedText PercentText(Machine& machine, const MarkedText& format,
                       const Value& values) {
  const std::string_view bytes = format.text();
  TextBuilder out(&machine.budget());
  const Row* row = values.row();
  const bool tuple = row != nullptr && row->type == RowType::kTuple;
  size_t used = 0;
  const auto next = [&]() -> Value {
    if (!tuple && used++ == 0) return values;
    if (!tuple || used >= row->items.size()) {
      Fail("a value for each % of a format", "fewer");
    }
    return row->items[used++];
  };
  for (size_t at = 0; at < bytes.size();) {
    const size_t percent = std::min(bytes.find('%', at), bytes.size());
    out.Append(format, at, percent);
    at = percent;
    if (at++ == bytes.size()) break;
    std::optional<Value> named;
    if (at < bytes.size() && bytes[at] == '(') {
      const size_t close = bytes.find(')', at);
      const Dictionary* dictionary = values.dictionary();
      if (close == bytes.npos || dictionary == nullptr) {
        Fail("an object for %(name)", Describe(values));
      }
      const Value* found =
          Find(*dictionary, bytes.substr(at + 1, close - at - 1));
      if (found == nullptr) Fail("a value for each %(name)", "none");
      named = *found;
      used = 1;
      at = close + 1;
    }
    Spec spec;
    bool left = false, zero = false;
    for (; at < bytes.size(); ++at) {
      const char c = bytes[at];
      if (c == '-') {
        left = true;
      } else if (c == '0') {
        zero = true;
      } else if (c == '+' || c == ' ') {
        spec.sign = c;
      } else if (c == '#') {
        spec.alternate = true;
      } else {
        break;
      }
    }
    spec.width = std::max<int64_t>(ReadWidth(bytes, &at), 0);
    if (at < bytes.size() && bytes[at] == '.') {
      ++at;
      spec.precision = std::max<int64_t>(ReadWidth(bytes, &at), 0);
    }
    if (at == bytes.size()) Fail("a conversion after %", "the end");
    const char type = bytes[at++];
    if (type == '%') {
      out.Append("%");
      continue;
    }
    const Value value = named ? *named : next();
    if (type == 's' || type == 'r') {
      TextBuilder text(&machine.budget());
      type == 'r' ? AppendRepr(text, value) : AppendStr(text, value);
      MarkedText own = text.Take();
      if (spec.precision >= 0) {
        own.Truncate(ByteOffset(own.text(), IsAscii(own.text()),
                                static_cast<size_t>(spec.precision)));
      }
      Pad(out, "", own, spec, left ? '<' : '>');
      continue;
    }
    if (type == 'c') {
      MarkedText one = Str(machine.budget(), value);
      if (const int64_t* code = value.If<int64_t>()) {
        if (*code < 0 || !IsScalarValue(static_cast<uint32_t>(
                             std::min<int64_t>(*code, UINT32_MAX)))) {
          Fail("a character for %c", StrCat(*code));
        }
        std::string bytes;
        AppendUtf8(static_cast<uint32_t>(*code), bytes);
        one = MarkedText(bytes, false);
      }
      if (CountCharacters(one.text()) != 1) {
        Fail("one character for %c", Describe(value));
      }
      Pad(out, "", one, spec, left ? '<' : '>');
      continue;
    }
    constexpr std::string_view kTypes = "diuxXofFeEgG";
    if (kTypes.find(type) == kTypes.npos || !value.number()) {
      Fail(StrCat("a value for %", std::string(1, type)), Describe(value));
    }
    spec.type = type == 'i' || type == 'u' ? 'd' : type;
    Value number = value;
    if (spec.type == 'd' && value.If<double>() != nullptr) {
      const double whole = std::trunc(*value.If<double>());
      if (!(std::fabs(whole) < 0x1p63)) Fail("an integer of 64 bits", "more");
      number = static_cast<int64_t>(whole);
    }
    if (spec.type == 'd') spec.precision = -1;
    if (zero && !left) spec.fill = "0";
    spec.align = left ? '<' : zero ? '=' : '>';
    AppendNumber(out, number, spec);
  }
  if (tuple ? used < row->items.size()
            : used == 0 && values.dictionary() == nullptr &&
                  !values.undefined() &&
                  (row == nullptr || row->type != RowType::kList)) {
    Fail("as many values as the format takes", "more");
  }
  return out.Take();
}

}  // namespace tarn::jinja
