// Decimal numbers within bounds, as expressions over their digits.
#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.h"
#include "core/json.h"
#include "text/grammar/schema/schema_reader.h"

namespace tarn::grammar {
namespace {

uint64_t Magnitude(int64_t negative) {
  return uint64_t{0} - static_cast<uint64_t>(negative);
}

CodePointSet DigitRange(char low, char high) {
  return CodePointSet(
      {{static_cast<uint32_t>(low), static_cast<uint32_t>(high)}});
}

}  // namespace

// As many digits of any value.
ExpressionId JsonTexts::Digits(int64_t count) {
  return source_.Repeat(source_.Set(DigitRange('0', '9')), count, count);
}

// Numbers of as many digits as `low`, leading zeros included, from it on.
ExpressionId JsonTexts::DigitsFrom(const std::string& low) {
  if (low.empty()) return source_.Empty();
  const auto rest = static_cast<int64_t>(low.size()) - 1;
  std::vector<ExpressionId> ways{source_.Sequence(
      {source_.Text(low.substr(0, 1)), DigitsFrom(low.substr(1))})};
  if (low[0] < '9') {
    const char above = static_cast<char>(low[0] + 1);
    ways.push_back(
        source_.Sequence({source_.Set(DigitRange(above, '9')), Digits(rest)}));
  }
  return source_.Choice(std::move(ways));
}

ExpressionId JsonTexts::DigitsTo(const std::string& high) {
  if (high.empty()) return source_.Empty();
  const auto rest = static_cast<int64_t>(high.size()) - 1;
  std::vector<ExpressionId> ways{source_.Sequence(
      {source_.Text(high.substr(0, 1)), DigitsTo(high.substr(1))})};
  if (high[0] > '0') {
    const char below = static_cast<char>(high[0] - 1);
    ways.push_back(
        source_.Sequence({source_.Set(DigitRange('0', below)), Digits(rest)}));
  }
  return source_.Choice(std::move(ways));
}

// low <= high, of the same length.
ExpressionId JsonTexts::DigitsBetween(const std::string& low,
                                      const std::string& high) {
  size_t same = 0;
  while (same < low.size() && low[same] == high[same]) ++same;
  if (same == low.size()) return source_.Text(low);
  const std::string low_rest = low.substr(same + 1);
  const std::string high_rest = high.substr(same + 1);
  std::vector<ExpressionId> ways{
      source_.Sequence(
          {source_.Text(low.substr(same, 1)), DigitsFrom(low_rest)}),
      source_.Sequence(
          {source_.Text(high.substr(same, 1)), DigitsTo(high_rest)})};
  if (low[same] + 1 < high[same]) {
    const char above = static_cast<char>(low[same] + 1);
    const char below = static_cast<char>(high[same] - 1);
    ways.push_back(
        source_.Sequence({source_.Set(DigitRange(above, below)),
                          Digits(static_cast<int64_t>(low_rest.size()))}));
  }
  return source_.Sequence(
      {source_.Text(low.substr(0, same)), source_.Choice(std::move(ways))});
}

// Integers without a sign from low to high, or from low on.
ExpressionId JsonTexts::Magnitudes(uint64_t low, std::optional<uint64_t> high) {
  std::vector<ExpressionId> ways;
  std::string from = std::to_string(low);
  const std::string to = high ? std::to_string(*high) : from;
  // One length after the other; longer ones begin with a one and zeros.
  while (from.size() < to.size()) {
    ways.push_back(DigitsBetween(from, std::string(from.size(), '9')));
    from = "1" + std::string(from.size(), '0');
  }
  if (high) {
    ways.push_back(DigitsBetween(from, to));
  } else {
    ways.push_back(DigitsBetween(from, std::string(from.size(), '9')));
    ways.push_back(source_.Sequence(
        {source_.Set(DigitRange('1', '9')),
         source_.Repeat(source_.Set(DigitRange('0', '9')),
                        static_cast<int64_t>(from.size()), kUnbounded)}));
  }
  return source_.Choice(std::move(ways));
}

ExpressionId JsonTexts::IntegerRange(std::optional<int64_t> low,
                                     std::optional<int64_t> high) {
  std::vector<ExpressionId> ways;
  if (!high || *high >= 0) {
    ways.push_back(
        Magnitudes(static_cast<uint64_t>(std::max<int64_t>(low.value_or(0), 0)),
                   high ? std::optional<uint64_t>(static_cast<uint64_t>(*high))
                        : std::nullopt));
  }
  if (!low || *low < 0) {
    ways.push_back(source_.Sequence(
        {source_.Text("-"),
         Magnitudes(high && *high < 0 ? Magnitude(*high) : 1,
                    low ? std::optional(Magnitude(*low)) : std::nullopt)}));
  }
  return source_.Choice(std::move(ways));
}

// Numbers without a sign: whole parts from low to below high with any
// fraction, and high with a fraction of zeros. A whole part whose fraction must
// not be zero is the open lower bound's.
ExpressionId JsonTexts::Decimals(uint64_t low, bool low_open,
                                 std::optional<uint64_t> high, bool high_open) {
  const auto fraction = [&](const char* pattern) { return Regex(pattern); };
  std::vector<ExpressionId> ways;
  if (high && low == *high) {
    if (!low_open && !high_open) {
      ways.push_back(source_.Sequence(
          {source_.Text(std::to_string(low)), fraction("(?:\\.0+)?")}));
    }
  } else {
    if (low_open) {
      ways.push_back(source_.Sequence({source_.Text(std::to_string(low)),
                                       fraction("\\.[0-9]*[1-9][0-9]*")}));
    }
    const uint64_t first = low + (low_open ? 1 : 0);
    if (!high || first < *high) {
      ways.push_back(source_.Sequence(
          {Magnitudes(first, high ? std::optional(*high - 1) : std::nullopt),
           fraction("(?:\\.[0-9]+)?")}));
    }
    if (high && !high_open) {
      ways.push_back(source_.Sequence(
          {source_.Text(std::to_string(*high)), fraction("(?:\\.0+)?")}));
    }
  }
  return ways.empty() ? source_.Nothing() : source_.Choice(std::move(ways));
}

ExpressionId JsonTexts::NumberRange(std::optional<Bound> low,
                                    std::optional<Bound> high) {
  std::vector<ExpressionId> ways;
  if (!high || high->value > 0 || (high->value == 0 && !high->open)) {
    const bool positive = low && low->value >= 0;
    ways.push_back(Decimals(
        positive ? static_cast<uint64_t>(low->value) : 0, positive && low->open,
        high ? std::optional<uint64_t>(static_cast<uint64_t>(high->value))
             : std::nullopt,
        high && high->open));
  }
  if (!low || low->value < 0) {
    // From zero, which the numbers above may be or not, if any.
    const bool negative = high && high->value <= 0;
    ways.push_back(source_.Sequence(
        {source_.Text("-"),
         Decimals(negative ? Magnitude(high->value) : 0, negative && high->open,
                  low ? std::optional(Magnitude(low->value)) : std::nullopt,
                  low && low->open)}));
  }
  return ways.empty() ? source_.Nothing() : source_.Choice(std::move(ways));
}

namespace {

// An integer of a bound, rounded into the range; `up`: a lower bound.
std::optional<int64_t> WholeBound(const SchemaJson& value, bool up) {
  if (const auto whole = JsonInteger(nlohmann::json(value))) return whole;
  if (!value.is_number_float()) return std::nullopt;
  const double real = value.get<double>();
  if (std::abs(real) > 9007199254740992.0) return std::nullopt;
  return static_cast<int64_t>(up ? std::ceil(real) : std::floor(real));
}

}  // namespace

ExpressionId SchemaReader::NumberSchema(const SchemaJson& schema, bool integer,
                                        const std::string& pointer) {
  std::optional<JsonTexts::Bound> low, high;
  const auto read = [&](const char* keyword, bool lower, bool open) {
    if (!schema.contains(keyword)) return;
    const SchemaJson& value = schema[keyword];
    if (!value.is_number()) {
      RefuseKeyword(pointer, keyword, "a number", SchemaGiven(value));
    }
    const bool whole = JsonInteger(nlohmann::json(value)).has_value();
    const auto bound = WholeBound(value, lower);
    constexpr int64_t kMost = int64_t{1} << 62;
    if (!bound || *bound > kMost || *bound < -kMost) {
      RefuseKeyword(pointer, keyword, "a bound of 62 bits or less",
                    SchemaGiven(value));
    }
    if (!integer && !whole) {
      RefuseKeyword(pointer, keyword, "a whole number as the bound of numbers",
                    SchemaGiven(value));
    }
    JsonTexts::Bound read{*bound, open && whole};
    if (integer && read.open) read = {*bound + (lower ? 1 : -1), false};
    std::optional<JsonTexts::Bound>& kept = lower ? low : high;
    const bool tighter =
        !kept || (lower ? read.value > kept->value : read.value < kept->value);
    if (tighter || (read.value == kept->value && read.open)) kept = read;
  };
  read("minimum", true, false);
  read("exclusiveMinimum", true, true);
  read("maximum", false, false);
  read("exclusiveMaximum", false, true);
  if (!low && !high) return integer ? texts_.Integer() : texts_.Number();
  if (low && high &&
      (low->value > high->value ||
       (low->value == high->value && (low->open || high->open)))) {
    RefuseSchema(pointer, "bounds with a number between them", "none");
  }
  if (!integer) return texts_.NumberRange(low, high);
  return texts_.IntegerRange(low ? std::optional(low->value) : std::nullopt,
                             high ? std::optional(high->value) : std::nullopt);
}

}  // namespace tarn::grammar
