// How filters take arguments, and the filters of single values.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>

#include "core/numbers/number_text.h"
#include "core/text.h"
#include "text/template/interpreter.h"
#include "text/template/values/python_text.h"

namespace tarn::jinja {
namespace {

Value Default(Machine&, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "default", {"default_value", "boolean"});
  if (!value.undefined() && !(bound.TruthOr(1, false) && !Truth(value))) {
    return value;
  }
  return bound.given(0) ? bound[0] : MakeText(nullptr, "");
}

Value ToInt(Machine&, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "int", {"default", "base"});
  const Value otherwise = bound.given(0) ? bound[0] : Value(int64_t{0});
  double real = 0;
  if (const Text* text = value.text()) {
    int64_t whole = 0;
    const int64_t base = bound.IntegerOr(1, 10);
    if (base < 0 || base > 36 || base == 1) return otherwise;
    if (ReadInteger(text->marked.text(), static_cast<int>(base), &whole)) {
      return whole;
    }
    if (!ReadFloat(text->marked.text(), &real)) return otherwise;
  } else if (value.integral()) {
    const int64_t* whole = value.If<int64_t>();
    return whole != nullptr ? *whole : int64_t{*value.If<bool>()};
  } else if (const double* number = value.If<double>()) {
    real = *number;
    if (std::isinf(real)) Fail("a finite number", FloatText(real));
  } else if (value.undefined()) {
    Fail("a value for the filter int", Describe(value));
  } else {
    return otherwise;
  }
  if (!std::isfinite(real)) return otherwise;
  real = std::trunc(real);
  if (std::fabs(real) >= 0x1p63) Fail("an integer of 64 bits", FloatText(real));
  return static_cast<int64_t>(real);
}

Value ToFloat(Machine&, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "float", {"default"});
  if (const double* number = value.If<double>()) return *number;
  if (const int64_t* number = value.If<int64_t>()) {
    return static_cast<double>(*number);
  }
  if (const bool* flag = value.If<bool>()) return *flag ? 1.0 : 0.0;
  if (value.undefined()) {
    Fail("a value for the filter float", Describe(value));
  }
  double real = 0;
  const Text* text = value.text();
  if (text != nullptr && ReadFloat(text->marked.text(), &real)) return real;
  return bound.given(0) ? bound[0] : Value(0.0);
}

Value Absolute(Machine&, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "abs", {});
  if (const double* number = value.If<double>()) return std::fabs(*number);
  if (!value.integral()) Fail("a number for the filter abs", Describe(value));
  const int64_t* whole = value.If<int64_t>();
  const int64_t number = whole != nullptr ? *whole : *value.If<bool>();
  return number < 0 ? Minus(number) : Value(number);
}

Value Round(Machine&, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "round", {"precision", "method"});
  const int64_t precision = bound.IntegerOr(0, 0);
  const std::string method =
      bound.given(1) ? bound.TextAt(1).marked.text() : "common";
  if (method != "common" && method != "ceil" && method != "floor") {
    Fail("common, ceil or floor", Quoted(method));
  }
  if (!value.number()) Fail("a number for the filter round", Describe(value));
  const double* given = value.If<double>();
  if (given == nullptr && method == "common" && precision >= 0) {
    const bool* flag = value.If<bool>();
    return flag != nullptr ? Value(int64_t{*flag}) : value;
  }
  const int64_t* whole = value.If<int64_t>();
  const double number =
      given != nullptr
          ? *given
          : static_cast<double>(whole != nullptr ? *whole
                                                 : int64_t{*value.If<bool>()});
  if (std::abs(precision) > 300)
    Fail("a precision within 300", StrCat(precision));
  if (!std::isfinite(number)) return number;
  if (method == "common") {
    if (precision <= 0 && std::fabs(number) < 1e15) {
      const double power = std::pow(10.0, static_cast<double>(-precision));
      const double result = std::nearbyint(number / power) * power;
      if (given == nullptr) return static_cast<int64_t>(result);
      return result;
    }
    // Correctly rounded decimal digits, as Python's round has them.
    char buffer[700];
    const auto end = ToChars(buffer, buffer + sizeof buffer, number,
                             std::chars_format::fixed,
                             static_cast<int>(std::max<int64_t>(precision, 0)));
    double result = number;
    FromChars(buffer, end.ptr, result);
    return result;
  }
  const double power = std::pow(10.0, static_cast<double>(precision));
  return (method == "ceil" ? std::ceil(number * power)
                           : std::floor(number * power)) /
         power;
}

Value ToJson(Machine& machine, const Value& value, const Arguments& arguments) {
  return machine.MakeString(JsonText(machine, value, arguments));
}

Value Attr(Machine& machine, const Value& value, const Arguments& arguments) {
  const Bound bound(arguments, "attr", {"name"}, 1);
  if (value.undefined()) Fail("a value with attributes", Describe(value));
  if (!HasMethod(value, bound.TextAt(0).marked.text()) &&
      value.If<NamespaceObject*>() == nullptr &&
      value.If<std::shared_ptr<LoopState>>() == nullptr) {
    return MakeUndefined(StrCat(Describe(value), " has no attribute ",
                                Quoted(bound.TextAt(0).marked.text())));
  }
  return Attribute(machine, value, bound[0]);
}

constexpr Filter kFilters[] = {
    {"abs", Absolute},  {"attr", Attr}, {"d", Default},   {"default", Default},
    {"float", ToFloat}, {"int", ToInt}, {"round", Round}, {"tojson", ToJson},
};

// Text without white space around it and with single underscores between its
// digits gone; false if they are elsewhere.
bool Digits(std::string_view text, std::string* digits) {
  size_t begin = 0, end = text.size();
  while (begin < end) {
    const CodePoint c = ReadCodePoint(text.substr(begin));
    if (!IsSpace(c.value)) break;
    begin += c.bytes;
  }
  while (end > begin) {
    const size_t before = Before(text, end);
    if (!IsSpace(ReadCodePoint(text.substr(before)).value)) break;
    end = before;
  }
  digits->clear();
  const auto alphanumeric = [](char c) {
    return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');
  };
  for (size_t i = begin; i < end; ++i) {
    if (text[i] != '_') {
      *digits += text[i];
    } else if (i == begin || i + 1 == end || !alphanumeric(text[i - 1]) ||
               !alphanumeric(text[i + 1])) {
      return false;
    }
  }
  return !digits->empty();
}

}  // namespace

Bound::Bound(const Arguments& arguments, std::string_view function,
             std::initializer_list<std::string_view> names, size_t required)
    : function_(function),
      names_(names),
      values_(names.size()),
      given_(names.size()) {
  if (arguments.positional.size() > names_.size()) {
    Fail(StrCat("at most ", names_.size(), " arguments of ", function_),
         StrCat(arguments.positional.size()));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    values_[i] = arguments.positional[i];
    given_[i] = true;
  }
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(names_.begin(), names_.end(), name);
    const auto i = static_cast<size_t>(found - names_.begin());
    if (name.empty() || found == names_.end() || given_[i]) {
      Fail(StrCat("arguments of ", function_),
           StrCat(found == names_.end() ? "" : "a second ", Quoted(name)));
    }
    values_[i] = value;
    given_[i] = true;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!given_[i]) {
      Fail(StrCat("at least ", required, " arguments of ", function_),
           StrCat(i));
    }
  }
}

const Text& Bound::TextAt(size_t i) const {
  if (values_[i].text() == nullptr) {
    Fail(StrCat("text as argument ", i + 1, " of ", function_),
         Describe(values_[i]));
  }
  return *values_[i].text();
}

int64_t Bound::IntegerAt(size_t i) const {
  const Value& value = values_[i];
  if (!value.integral()) {
    Fail(StrCat("a whole number as argument ", i + 1, " of ", function_),
         Describe(value));
  }
  const int64_t* number = value.If<int64_t>();
  return number != nullptr ? *number : int64_t{*value.If<bool>()};
}

bool ReadInteger(std::string_view text, int base, int64_t* value) {
  std::string digits;
  if (!Digits(text, &digits)) return false;
  const char* first = digits.data();
  const char* const last = first + digits.size();
  const bool negative = *first == '-';
  if (*first == '-' || *first == '+') ++first;
  if (last - first > 2 && *first == '0') {
    const char mark = static_cast<char>(first[1] | 32);
    const int marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (marked != 0 && (base == 0 || base == marked)) {
      base = marked;
      first += 2;
    }
  }
  if (base == 0) base = 10;
  uint64_t magnitude = 0;
  const auto read = std::from_chars(first, last, magnitude, base);
  if (read.ptr != last || first == last) return false;
  if (read.ec != std::errc() ||
      magnitude > uint64_t{INT64_MAX} + (negative ? 1 : 0)) {
    Fail("an integer of 64 bits", Quoted(text));
  }
  *value = static_cast<int64_t>(negative ? uint64_t{0} - magnitude : magnitude);
  return true;
}

bool ReadFloat(std::string_view text, double* value) {
  std::string digits;
  if (!Digits(text, &digits)) return false;
  const char* first = digits.data();
  const char* const last = first + digits.size();
  if (*first == '+') ++first;
  if (first == last || (*first == '-' && last - first == 1)) return false;
  const auto read = FromChars(first, last, *value);
  if (read.ec == std::errc::result_out_of_range) {
    // Too large or too small: Python has inf or 0.
    const bool small =
        digits.find("e-") != digits.npos || digits.find("E-") != digits.npos;
    *value = small ? 0.0 : (digits[0] == '-' ? -INFINITY : INFINITY);
    return read.ptr == last;
  }
  return read.ec == std::errc() && read.ptr == last;
}

const Filter* FindFilter(std::string_view name) {
  for (const Filter& filter : kFilters) {
    if (filter.name == name) return &filter;
  }
  const Filter* found = FindTextFilter(name);
  return found != nullptr ? found : FindRowFilter(name);
}

}  // namespace tarn::jinja
