// The portable functions against those of the standard library, which the
// native build has.
#include "core/numbers/number_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>

#include "core/numbers/bit_cast.h"

namespace tarn {
namespace {

template <typename Real>
std::string Portable(Real value) {
  char text[400];
  const auto end = portable::ToChars(text, text + sizeof text, value);
  EXPECT_EQ(end.ec, std::errc());
  return {text, end.ptr};
}

template <typename Real>
void ReadsBack(const std::string& text, Real value) {
  Real read = 0;
  const char* const end = text.data() + text.size();
  const auto result = portable::FromChars(text.data(), end, read);
  EXPECT_EQ(result.ec, std::errc()) << text;
  EXPECT_EQ(result.ptr, end) << text;
  EXPECT_EQ(read, value) << text;
  EXPECT_EQ(std::signbit(read), std::signbit(value)) << text;
}

#if defined(__cpp_lib_to_chars)
template <typename Real>
std::string Standard(Real value) {
  char text[400];
  return {text, std::to_chars(text, text + sizeof text, value).ptr};
}
#endif

template <typename Real>
void Check(Real value) {
  const std::string text = Portable(value);
#if defined(__cpp_lib_to_chars)
  ASSERT_EQ(text, Standard(value));
#endif
  if (!std::isnan(value)) ReadsBack(text, value);
}

template <typename Real, typename Bits>
void CheckMany() {
  using Limits = std::numeric_limits<Real>;
  for (const Real value :
       {Real{0}, -Real{0}, Real{1}, Limits::min(), Limits::max(),
        Limits::lowest(), Limits::denorm_min(), Limits::infinity(),
        -Limits::infinity(), Limits::quiet_NaN(), Real(0.1), Real(1e-6),
        Real(100000), Real(123456), Real(1e22), Real(1e23), Real(1.5e15)}) {
    Check(value);
  }
  // At powers of two the gaps on both sides differ.
  for (int e = Limits::min_exponent - Limits::digits; e < Limits::max_exponent;
       ++e) {
    Check(std::ldexp(Real{1}, e));
    Check(std::nextafter(std::ldexp(Real{1}, e), Real{0}));
  }
  std::mt19937_64 random(1);
  for (int i = 0; i < 20000; ++i) {
    const Real any = BitCast<Real>(static_cast<Bits>(random()));
    if (!std::isnan(any)) Check(any);
    Check(static_cast<Real>(static_cast<double>(random() % 100000) / 1000.0));
    Check(static_cast<Real>(random() >> (random() % 64)));
  }
}

TEST(NumberText, FloatsAreThoseOfTheStandard) { CheckMany<float, uint32_t>(); }
TEST(NumberText, DoublesAreThoseOfTheStandard) {
  CheckMany<double, uint64_t>();
}

TEST(NumberText, ShortTexts) {
  EXPECT_EQ(Portable(0.1f), "0.1");
  EXPECT_EQ(Portable(1e-5), "1e-05");
  EXPECT_EQ(Portable(5.684341886080802e-14), "5.684341886080802e-14");
  EXPECT_EQ(Portable(-1e22), "-1e+22");
  EXPECT_EQ(Portable(std::numeric_limits<double>::denorm_min()), "5e-324");
  char small[3];
  const auto result = portable::ToChars(small, small + sizeof small, 0.25);
  EXPECT_EQ(result.ec, std::errc::value_too_large);
  EXPECT_EQ(result.ptr, small + sizeof small);
}

#if defined(__cpp_lib_to_chars)
TEST(NumberText, FormatsAndPrecisionsAreThoseOfTheStandard) {
  using std::chars_format;
  std::mt19937_64 random(2);
  for (int i = 0; i < 4000; ++i) {
    const double value = i % 2
                             ? BitCast<double>(static_cast<uint64_t>(random()))
                             : static_cast<double>(random() % 1000000) / 64.0;
    if (std::isnan(value)) continue;
    for (const chars_format format :
         {chars_format::fixed, chars_format::scientific}) {
      char got[1100], want[1100];
      auto end = portable::ToChars(got, got + sizeof got, value, format);
      auto other = std::to_chars(want, want + sizeof want, value, format);
      ASSERT_EQ(std::string(got, end.ptr), std::string(want, other.ptr));
      const int precision = static_cast<int>(random() % 20);
      end = portable::ToChars(got, got + sizeof got, value, format, precision);
      other = std::to_chars(want, want + sizeof want, value, format, precision);
      ASSERT_EQ(std::string(got, end.ptr), std::string(want, other.ptr));
    }
  }
}

TEST(NumberText, ReadsWhatTheStandardReads) {
  const char* const texts[] = {
      "",          "-",        "+1",       " 1",
      "1",         "-1.5",     "1.",       ".5",
      ".",         "-.e1",     "1e",       "1e+",
      "1e5x",      "1E-5",     "1e400",    "-1e400",
      "1e-400",    "0e999",    "0x10",     "inf",
      "-INF",      "nan",      "infinit",  "infinity",
      "INFINITYx", "1.5.2",    "1,5",      "00012.50",
      "1e-320",    "2.5e-324", "2.4e-324", "123456789012345678901234567890",
      "1_0"};
  for (const std::string text : texts) {
    const char* const end = text.data() + text.size();
    double want = 7, got = 7;
    const auto expected = std::from_chars(text.data(), end, want);
    const auto result = portable::FromChars(text.data(), end, got);
    EXPECT_EQ(result.ec, expected.ec) << text;
    EXPECT_EQ(result.ptr - text.data(), expected.ptr - text.data()) << text;
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(got)) << text;
    } else {
      EXPECT_EQ(got, want) << text;
    }
    float narrow = 7, read = 7;
    const auto same = std::from_chars(text.data(), end, narrow);
    EXPECT_EQ(portable::FromChars(text.data(), end, read).ec, same.ec) << text;
    if (!std::isnan(narrow)) {
      EXPECT_EQ(read, narrow) << text;
    }
  }
}
#endif

TEST(BitCast, BitsStay) {
  static_assert(BitCast<uint32_t>(1.0f) == 0x3F800000u);
  EXPECT_EQ(BitCast<double>(uint64_t{1}),
            std::numeric_limits<double>::denorm_min());
}

}  // namespace
}  // namespace tarn
