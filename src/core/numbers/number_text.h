// std::to_chars and std::from_chars, also where the standard library has them
// for integers alone: the one of the WebAssembly build. There the functions of
// namespace portable stand in, whose results are the same on any machine.
#pragma once

#include <charconv>
#include <type_traits>

namespace tarn {
namespace portable {

/// The shortest decimal number that reads back as `value`, and of those with
/// as few digits the nearest; plain or scientific, whichever takes fewer
/// characters, and plain where both take as many. The results of std::to_chars.
std::to_chars_result ToChars(char* first, char* last, float value);
std::to_chars_result ToChars(char* first, char* last, double value);
/// The same digits in `format`, which must not be hex.
std::to_chars_result ToChars(char* first, char* last, double value,
                             std::chars_format format);
/// Correctly rounded to `precision` digits after the point.
std::to_chars_result ToChars(char* first, char* last, double value,
                             std::chars_format format, int precision);

/// The number nearest to the decimal number that [first, last) begins with, as
/// std::from_chars reads it.
std::from_chars_result FromChars(const char* first, const char* last,
                                 float& value);
std::from_chars_result FromChars(const char* first, const char* last,
                                 double& value);

}  // namespace portable

/// std::to_chars of a number; `how` is as there: nothing, or the base of an
/// integer, or the format of a real number and perhaps a precision.
template <typename Number, typename... How>
std::to_chars_result ToChars(char* first, char* last, Number value,
                             How... how) {
#if !defined(__cpp_lib_to_chars)
  if constexpr (std::is_floating_point_v<Number>) {
    return portable::ToChars(first, last, value, how...);
  } else
#endif
    return std::to_chars(first, last, value, how...);
}

/// std::from_chars of a number; `how`: nothing or the base of an integer.
template <typename Number, typename... How>
std::from_chars_result FromChars(const char* first, const char* last,
                                 Number& value, How... how) {
#if !defined(__cpp_lib_to_chars)
  if constexpr (std::is_floating_point_v<Number>) {
    return portable::FromChars(first, last, value, how...);
  } else
#endif
    return std::from_chars(first, last, value, how...);
}

}  // namespace tarn
