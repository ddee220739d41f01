#include "runtime/sampling/option_table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "config/own_key.h"
#include "core/error.h"
#include "core/text.h"
#include "runtime/sampling/sampler_words.h"

namespace tarn {
namespace {

constexpr double kNoEnd = std::numeric_limits<double>::infinity();

using Options = SamplerOptions;

const SamplerOption kRows[] = {
    {.name = "logit_bias",
     .member = SamplerWords{BiasWords, SetBiasWords},
     .least = 0,
     .most = kMaxLogitBiases,
     .help = "added to the logit of a token, ID=BIAS with -100 to 100, or "
             "ID=false: never"},
    {.name = "repeat_last_n",
     .member = &Options::repeat_last_n,
     .least = -1,
     .most = 65536,
     .note = "0: off; -1: all",
     .help = "the latest tokens, the prompt's included, that count for the "
             "three penalties"},
    {.name = "repeat_penalty",
     .member = &Options::repeat_penalty,
     .least = 0,
     .most = 10,
     .above = true,
     .note = "1: off",
     .help = "divide positive logits of those tokens by this, multiply others"},
    {.name = "presence_penalty",
     .member = &Options::presence_penalty,
     .least = -2,
     .most = 2,
     .note = "0: off",
     .help = "taken off the logit of each of those tokens"},
    {.name = "frequency_penalty",
     .member = &Options::frequency_penalty,
     .least = -2,
     .most = 2,
     .note = "0: off",
     .help = "the same, times how often it occurs among them"},
    {.name = "dry_multiplier",
     .member = &Options::dry_multiplier,
     .least = 0,
     .most = 10,
     .note = "0: off",
     .help = "DRY: a token that would extend a repetition of n tokens loses "
             "dry_multiplier * dry_base^(n - dry_allowed_length)"},
    {.name = "dry_base",
     .member = &Options::dry_base,
     .least = 0,
     .most = 100,
     .note = "below 1: off",
     .help = "DRY: growth of the penalty with each token repeated"},
    {.name = "dry_allowed_length",
     .member = &Options::dry_allowed_length,
     .least = 0,
     .most = 65536,
     .help = "DRY: shorter repetitions cost nothing"},
    {.name = "dry_penalty_last_n",
     .member = &Options::dry_penalty_last_n,
     .least = -1,
     .most = 65536,
     .note = "0: off; -1: all",
     .help = "DRY: the latest tokens that are searched for repetitions"},
    {.name = "dry_sequence_breakers",
     .member = SamplerWords{BreakerWords, SetBreakerWords},
     .least = 0,
     .most = kMaxDryBreakers,
     .help = "DRY: no repetition reaches over these texts, each of at most 40 "
             "bytes; an empty one alone stands for none"},
    {.name = "top_n_sigma",
     .member = &Options::top_n_sigma,
     .least = -kNoEnd,
     .most = 100,
     .note = "0 and below: off",
     .help = "keep tokens whose logits are within this many standard "
             "deviations of the best"},
    {.name = "top_k",
     .member = &Options::top_k,
     .least = 0,
     .most = kNoEnd,
     .note = "0: off",
     .help = "keep the k likeliest tokens"},
    {.name = "typical_p",
     .member = &Options::typical_p,
     .least = 0,
     .most = 1,
     .above = true,
     .note = "1: off",
     .help =
         "keep the tokens whose surprise is nearest to the expected one and "
         "whose probabilities add up to more than this"},
    {.name = "top_p",
     .member = &Options::top_p,
     .least = 0,
     .most = 1,
     .above = true,
     .note = "1: off",
     .help = "keep the likeliest tokens whose probabilities add up to this"},
    {.name = "min_p",
     .member = &Options::min_p,
     .least = 0,
     .most = 1,
     .note = "0: off",
     .help = "drop tokens less likely than this fraction of the likeliest"},
    {.name = "xtc_probability",
     .member = &Options::xtc_probability,
     .least = 0,
     .most = 1,
     .note = "0: off",
     .help = "XTC: how often it acts"},
    {.name = "xtc_threshold",
     .member = &Options::xtc_threshold,
     .least = 0,
     .most = 1,
     .note = "above 0.5: off",
     .help = "XTC: of the tokens at least this likely only the least likely "
             "stays"},
    {.name = "temperature",
     .member = &Options::temperature,
     .least = -kNoEnd,
     .most = 100,
     .note = "0 and below: greedy",
     .help = "sampling temperature; 0 always takes the likeliest token"},
    {.name = "dynatemp_range",
     .member = &Options::dynatemp_range,
     .least = 0,
     .most = 100,
     .note = "0: off",
     .help = "the temperature is up to this much lower or higher, by the "
             "entropy"},
    {.name = "dynatemp_exponent",
     .member = &Options::dynatemp_exponent,
     .least = 0,
     .most = 100,
     .help = "how the entropy, as a fraction of the largest, gives the "
             "temperature"},
    {.name = "mirostat",
     .member = &Options::mirostat,
     .least = 0,
     .most = 2,
     .note = "0: off",
     .help = "Mirostat 1 or 2, which holds the surprise of the text near "
             "mirostat_tau, in place of top_n_sigma to xtc_threshold"},
    {.name = "mirostat_tau",
     .member = &Options::mirostat_tau,
     .least = 0,
     .most = 100,
     .help = "Mirostat: the surprise wanted, in bits"},
    {.name = "mirostat_eta",
     .member = &Options::mirostat_eta,
     .least = 0,
     .most = 1,
     .help = "Mirostat: how fast it corrects"},
    {.name = "min_keep",
     .member = &Options::min_keep,
     .least = 0,
     .most = kNoEnd,
     .help = "no stage leaves fewer tokens, where there are as many"},
    {.name = "samplers",
     .member = SamplerWords{StageWords, SetStageWords},
     .least = 0,
     .most = 9,
     .help = "the stages in their order, each at most once; what is left out "
             "does not run. One text may name several, with ; between them"},
};

// The alternatives that a value has, for messages.
std::string TypeOf(const SamplerOption& option) {
  if (std::holds_alternative<SamplerWords>(option.member)) {
    return "a list of texts";
  }
  return std::holds_alternative<int64_t Options::*>(option.member)
             ? "a whole number"
             : "a number";
}

[[noreturn]] void RefuseValue(const SamplerOption& option,
                              const std::string& given) {
  throw ArgumentError(std::string(option.name), WantedBy(option), given);
}

template <typename T>
bool IsWithin(const SamplerOption& option, T value) {
  if constexpr (std::is_integral_v<T>) {
    // Both ends are integers, or infinite.
    return (option.least == -kNoEnd ||
            value >= static_cast<int64_t>(option.least)) &&
           (option.most == kNoEnd ||
            value <= static_cast<int64_t>(option.most));
  } else {
    // NaN fails both comparisons.
    const bool low =
        option.above ? value > option.least : value >= option.least;
    return low && value <= option.most;
  }
}

void CheckRow(const SamplerOption& option, const Options& options) {
  if (const auto* whole = std::get_if<int64_t Options::*>(&option.member)) {
    if (!IsWithin(option, options.**whole)) {
      RefuseValue(option, StrCat(options.**whole));
    }
  } else if (const auto* real =
                 std::get_if<double Options::*>(&option.member)) {
    if (!IsWithin(option, options.**real)) {
      RefuseValue(option, StrCat(options.**real));
    }
  }
}

}  // namespace

std::span<const SamplerOption> SamplerOptionTable() { return kRows; }

const SamplerOption* FindSamplerOption(std::string_view name) {
  const auto* const found =
      std::find_if(std::begin(kRows), std::end(kRows),
                   [&](const SamplerOption& row) { return row.name == name; });
  return found == std::end(kRows) ? nullptr : found;
}

std::string FlagOf(const SamplerOption& option) {
  std::string flag = StrCat("--", option.name);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

std::string WantedBy(const SamplerOption& option) {
  std::string wanted = TypeOf(option);
  if (std::holds_alternative<SamplerWords>(option.member)) {
    wanted = StrCat("at most ", option.most, " texts");
  } else if (option.least == -kNoEnd) {
    wanted += StrCat(" up to ", option.most);
  } else if (option.most == kNoEnd) {
    wanted += StrCat(" from ", option.least);
  } else if (option.above) {
    wanted += StrCat(" in (", option.least, ", ", option.most, "]");
  } else {
    wanted += StrCat(" from ", option.least, " to ", option.most);
  }
  if (!option.note.empty()) wanted += StrCat(" (", option.note, ")");
  return wanted;
}

SamplerValue ValueOf(const SamplerOption& option, const Options& options) {
  if (const auto* whole = std::get_if<int64_t Options::*>(&option.member)) {
    return options.**whole;
  }
  if (const auto* real = std::get_if<double Options::*>(&option.member)) {
    return options.**real;
  }
  return std::get<SamplerWords>(option.member).get(options);
}

void SetSamplerOption(Options& options, std::string_view name,
                      const SamplerValue& value) {
  const SamplerOption* const option = FindSamplerOption(name);
  if (option == nullptr) {
    throw ArgumentError("sampling option", "a name of the table", Quoted(name));
  }
  const auto* whole = std::get_if<int64_t>(&value);
  const auto* real = std::get_if<double>(&value);
  const auto* words = std::get_if<std::vector<std::string>>(&value);
  if (const auto* member = std::get_if<int64_t Options::*>(&option->member)) {
    if (whole == nullptr || !IsWithin(*option, *whole)) {
      RefuseValue(*option, TextOf(value));
    }
    options.** member = *whole;
  } else if (const auto* member =
                 std::get_if<double Options::*>(&option->member)) {
    if (words != nullptr) RefuseValue(*option, TextOf(value));
    const double number =
        whole != nullptr ? static_cast<double>(*whole) : *real;
    if (!IsWithin(*option, number)) RefuseValue(*option, TextOf(value));
    options.** member = number;
  } else {
    if (words == nullptr) RefuseValue(*option, TextOf(value));
    std::get<SamplerWords>(option->member).set(options, *words);
  }
}

std::string TextOf(const SamplerValue& value) {
  if (const auto* whole = std::get_if<int64_t>(&value)) return StrCat(*whole);
  if (const auto* real = std::get_if<double>(&value)) {
    return std::isfinite(*real) ? RealText(*real) : StrCat(*real);
  }
  nlohmann::json list = nlohmann::json::array();
  for (const std::string& word : std::get<std::vector<std::string>>(value)) {
    list.push_back(word);
  }
  // Bytes that are no UTF-8 become U+FFFD.
  return list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void CheckSampler(const Options& options) {
  for (const SamplerOption& row : kRows) CheckRow(row, options);
  // Quotients of float logits by the penalty stay finite.
  if (!std::isfinite(static_cast<float>(1 / options.repeat_penalty))) {
    RefuseValue(*FindSamplerOption("repeat_penalty"),
                StrCat(options.repeat_penalty));
  }
  CheckSamplerLists(options);
}

}  // namespace tarn
