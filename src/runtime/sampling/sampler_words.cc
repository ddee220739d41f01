#include "runtime/sampling/sampler_words.h"

#include <bitset>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/numbers/number_text.h"
#include "core/text.h"

namespace tarn {
namespace {

constexpr std::pair<SamplerStage, std::string_view> kStageNames[] = {
    {SamplerStage::kPenalties, "penalties"},
    {SamplerStage::kDry, "dry"},
    {SamplerStage::kTopNSigma, "top_n_sigma"},
    {SamplerStage::kTopK, "top_k"},
    {SamplerStage::kTypicalP, "typ_p"},
    {SamplerStage::kTopP, "top_p"},
    {SamplerStage::kMinP, "min_p"},
    {SamplerStage::kXtc, "xtc"},
    {SamplerStage::kTemperature, "temperature"},
};

SamplerStage StageNamed(std::string_view name) {
  if (name == "typical_p") return SamplerStage::kTypicalP;
  for (const auto& [stage, known] : kStageNames) {
    if (known == name) return stage;
  }
  std::string known;
  for (const auto& row : kStageNames) {
    known += StrCat(known.empty() ? "" : ", ", row.second);
  }
  throw ArgumentError("samplers", StrCat("names of ", known), Quoted(name));
}

// "15043=-5", "15043=false".
std::optional<LogitBias> BiasFrom(std::string_view text) {
  LogitBias bias;
  const char* const end = text.data() + text.size();
  const auto token = std::from_chars(text.data(), end, bias.token);
  if (token.ec != std::errc() || token.ptr == end || *token.ptr != '=') {
    return std::nullopt;
  }
  const std::string_view value =
      text.substr(static_cast<size_t>(token.ptr + 1 - text.data()));
  if (value == "false") {
    bias.bias = -std::numeric_limits<float>::infinity();
    return bias;
  }
  const auto number =
      FromChars(value.data(), value.data() + value.size(), bias.bias);
  if (number.ec != std::errc() || number.ptr != end) return std::nullopt;
  return bias;
}

// A setter's result becomes the options only where it is in range.
void SetChecked(SamplerOptions& options, SamplerOptions changed) {
  CheckSamplerLists(changed);
  options = std::move(changed);
}

}  // namespace

std::string_view Name(SamplerStage stage) {
  return kStageNames[static_cast<size_t>(stage)].second;
}

std::vector<std::string> StageWords(const SamplerOptions& options) {
  std::vector<std::string> words;
  for (const SamplerStage stage : options.samplers) {
    words.emplace_back(Name(stage));
  }
  return words;
}

void SetStageWords(SamplerOptions& options,
                   const std::vector<std::string>& words) {
  SamplerOptions changed = options;
  changed.samplers.clear();
  for (const std::string& word : words) {
    for (const std::string_view name : Split(word, ';')) {
      if (!name.empty()) changed.samplers.push_back(StageNamed(name));
    }
  }
  SetChecked(options, std::move(changed));
}

std::vector<std::string> BreakerWords(const SamplerOptions& options) {
  return options.dry_sequence_breakers;
}

void SetBreakerWords(SamplerOptions& options,
                     const std::vector<std::string>& words) {
  SamplerOptions changed = options;
  changed.dry_sequence_breakers = words;
  if (words.size() == 1 && words[0].empty()) {
    changed.dry_sequence_breakers.clear();
  }
  SetChecked(options, std::move(changed));
}

std::vector<std::string> BiasWords(const SamplerOptions& options) {
  std::vector<std::string> words;
  for (const LogitBias& bias : options.logit_bias) {
    char number[32];  // the shortest form of a float takes fewer
    const auto end = ToChars(number, number + sizeof(number), bias.bias);
    words.push_back(StrCat(bias.token, "=",
                           std::isinf(bias.bias)
                               ? std::string("false")
                               : std::string(number, end.ptr)));
  }
  return words;
}

void SetBiasWords(SamplerOptions& options,
                  const std::vector<std::string>& words) {
  SamplerOptions changed = options;
  changed.logit_bias.clear();
  for (const std::string& word : words) {
    const std::optional<LogitBias> bias = BiasFrom(word);
    if (!bias) {
      throw ArgumentError("logit_bias", "ID=BIAS or ID=false", Quoted(word));
    }
    changed.logit_bias.push_back(*bias);
  }
  SetChecked(options, std::move(changed));
}

void CheckSamplerLists(const SamplerOptions& options) {
  if (options.logit_bias.size() > kMaxLogitBiases) {
    throw ArgumentError("logit_bias", StrCat("at most ", kMaxLogitBiases),
                        StrCat(options.logit_bias.size()));
  }
  for (const LogitBias& bias : options.logit_bias) {
    if (bias.token < 0) {
      throw ArgumentError("logit_bias", "an id from 0", StrCat(bias.token));
    }
    const bool never = bias.bias == -std::numeric_limits<float>::infinity();
    if (!never && !(bias.bias >= -100 && bias.bias <= 100)) {
      throw ArgumentError("logit_bias", "-100 to 100 or false",
                          StrCat(bias.bias));
    }
  }
  if (options.dry_sequence_breakers.size() > kMaxDryBreakers) {
    throw ArgumentError("dry_sequence_breakers",
                        StrCat("at most ", kMaxDryBreakers),
                        StrCat(options.dry_sequence_breakers.size()));
  }
  for (const std::string& text : options.dry_sequence_breakers) {
    if (!text.empty() && text.size() <= kMaxDryBreakerBytes) continue;
    throw ArgumentError("dry_sequence_breakers",
                        StrCat("texts of 1 to ", kMaxDryBreakerBytes, " bytes"),
                        StrCat(text.size()));
  }
  std::bitset<std::size(kStageNames)> seen;
  for (const SamplerStage stage : options.samplers) {
    const auto index = static_cast<size_t>(stage);
    if (index >= seen.size() || seen[index]) {
      throw ArgumentError(
          "samplers", "every stage at most once",
          index < seen.size() ? StrCat(Name(stage), " twice") : "no stage");
    }
    seen.set(index);
  }
}

}  // namespace tarn
