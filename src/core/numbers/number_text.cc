#include "core/numbers/number_text.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>

namespace tarn::portable {
namespace {

// D.DDDe+XX of a finite number: the digits without the point, and the power of
// ten of the first.
struct Decimal {
  std::string digits;
  int exponent = 0;
};

float ReadBack(const std::string& text, float) {
  return std::strtof(text.c_str(), nullptr);
}
double ReadBack(const std::string& text, double) {
  return std::strtod(text.c_str(), nullptr);
}

std::string ScientificText(const Decimal& decimal) {
  std::string text(1, decimal.digits[0]);
  if (decimal.digits.size() > 1) text += "." + decimal.digits.substr(1);
  const int magnitude = std::abs(decimal.exponent);
  text += decimal.exponent < 0 ? "e-" : "e+";
  if (magnitude < 10) text += '0';
  return text + std::to_string(magnitude);
}

// `magnitude` rounded to the nearest decimal number of `count` digits.
Decimal Rounded(double magnitude, int count) {
  char text[40];
  std::snprintf(text, sizeof text, "%.*e", count - 1, magnitude);
  const char* const e = std::strchr(text, 'e');
  Decimal decimal;
  for (const char* c = text; c != e; ++c) {
    if (*c >= '0' && *c <= '9') decimal.digits += *c;  // any locale's point
  }
  decimal.exponent = std::atoi(e + 1);
  return decimal;
}

// One more in the last digit.
Decimal Next(Decimal decimal) {
  size_t i = decimal.digits.size();
  while (i > 0 && decimal.digits[i - 1] == '9') decimal.digits[--i] = '0';
  if (i > 0) {
    ++decimal.digits[i - 1];
  } else {
    decimal.digits.insert(decimal.digits.begin(), '1');
    decimal.digits.pop_back();
    ++decimal.exponent;
  }
  return decimal;
}

// Below a power of two numbers are twice as dense as above it, so that the
// nearest decimal number of a length may miss it from below while the next one
// does not: both are tried.
template <typename Real>
Decimal Shortest(Real magnitude) {
  for (int count = 1;; ++count) {
    const Decimal nearest = Rounded(magnitude, count);
    if (count >= std::numeric_limits<Real>::max_digits10) return nearest;
    for (const Decimal& one : {nearest, Next(nearest)}) {
      if (ReadBack(ScientificText(one), magnitude) == magnitude) return one;
    }
  }
}

std::string PlainText(Decimal decimal, double magnitude) {
  const int count = static_cast<int>(decimal.digits.size());
  if (decimal.exponent < 0) {
    return "0." + std::string(static_cast<size_t>(-decimal.exponent - 1), '0') +
           decimal.digits;
  }
  if (decimal.exponent + 1 >= count) {
    // All digits of an integer, not zeros after those that tell it apart.
    char text[320];
    std::snprintf(text, sizeof text, "%.0f", magnitude);
    return text;
  }
  return decimal.digits.insert(static_cast<size_t>(decimal.exponent) + 1, ".");
}

std::to_chars_result Write(char* first, char* last, bool negative,
                           std::string text) {
  if (negative) text.insert(text.begin(), '-');
  if (last - first < static_cast<std::ptrdiff_t>(text.size())) {
    return {last, std::errc::value_too_large};
  }
  return {std::copy(text.begin(), text.end(), first), std::errc()};
}

template <typename Real>
std::to_chars_result WriteShortest(char* first, char* last, Real value,
                                   bool plain, bool scientific) {
  const bool negative = std::signbit(value);
  const Real magnitude = std::fabs(value);
  if (std::isnan(value)) return Write(first, last, negative, "nan");
  if (std::isinf(value)) return Write(first, last, negative, "inf");
  const Decimal decimal =
      magnitude == 0 ? Decimal{"0", 0} : Shortest(magnitude);
  std::string text;
  if (plain) text = PlainText(decimal, magnitude);
  if (scientific) {
    const std::string other = ScientificText(decimal);
    if (!plain || other.size() < text.size()) text = other;
  }
  return Write(first, last, negative, text);
}

size_t DigitsAt(std::string_view text, size_t at) {
  size_t count = 0;
  while (at + count < text.size() && text[at + count] >= '0' &&
         text[at + count] <= '9') {
    ++count;
  }
  return count;
}

// Characters of the number that text begins with; 0: none.
size_t NumberLength(std::string_view text) {
  size_t at = text.starts_with('-') ? 1 : 0;
  for (const std::string_view word : {"infinity", "inf", "nan"}) {
    if (text.size() - at < word.size()) continue;
    bool same = true;
    for (size_t i = 0; i < word.size(); ++i) {
      same = same && (text[at + i] | 0x20) == word[i];
    }
    if (same) return at + word.size();
  }
  const size_t whole = DigitsAt(text, at);
  at += whole;
  size_t fraction = 0;
  if (at < text.size() && text[at] == '.') {
    fraction = DigitsAt(text, at + 1);
    if (whole + fraction > 0) at += 1 + fraction;
  }
  if (whole + fraction == 0) return 0;
  if (at < text.size() && (text[at] | 0x20) == 'e') {
    size_t digits = at + 1;
    if (digits < text.size() && (text[digits] == '+' || text[digits] == '-')) {
      ++digits;
    }
    const size_t count = DigitsAt(text, digits);
    if (count > 0) at = digits + count;
  }
  return at;
}

template <typename Real>
std::from_chars_result Read(const char* first, const char* last, Real& value) {
  const std::string_view text(first, static_cast<size_t>(last - first));
  const size_t length = NumberLength(text);
  if (length == 0) return {first, std::errc::invalid_argument};
  const std::string number(text.substr(0, length));
  const Real read = ReadBack(number, Real{});
  const char* const end = first + length;
  const bool digits = number.find_first_of("0123456789") != number.npos;
  const size_t mantissa = number.find_first_of("eE");
  const bool zero =
      number.substr(0, mantissa).find_first_of("123456789") == number.npos;
  if (digits && (std::isinf(read) || (read == 0 && !zero))) {
    return {end, std::errc::result_out_of_range};
  }
  value = read;
  return {end, std::errc()};
}

}  // namespace

std::to_chars_result ToChars(char* first, char* last, float value) {
  return WriteShortest(first, last, value, true, true);
}

std::to_chars_result ToChars(char* first, char* last, double value) {
  return WriteShortest(first, last, value, true, true);
}

std::to_chars_result ToChars(char* first, char* last, double value,
                             std::chars_format format) {
  return WriteShortest(first, last, value, format == std::chars_format::fixed,
                       format == std::chars_format::scientific);
}

std::to_chars_result ToChars(char* first, char* last, double value,
                             std::chars_format format, int precision) {
  if (!std::isfinite(value)) return ToChars(first, last, value);
  const char* const form =
      format == std::chars_format::scientific ? "%.*e" : "%.*f";
  char text[1100];  // 309 digits before the point and 767 after it, at most
  const int size =
      std::snprintf(text, sizeof text, form, precision, std::fabs(value));
  if (size < 0 || static_cast<size_t>(size) >= sizeof text) {
    return {last, std::errc::value_too_large};
  }
  return Write(first, last, std::signbit(value), text);
}

std::from_chars_result FromChars(const char* first, const char* last,
                                 float& value) {
  return Read(first, last, value);
}

std::from_chars_result FromChars(const char* first, const char* last,
                                 double& value) {
  return Read(first, last, value);
}

}  // namespace tarn::portable
