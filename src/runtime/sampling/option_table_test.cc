// The table of options: every row set, at its ends and beyond them.
#include "runtime/sampling/option_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"

namespace tarn {
namespace {

using Words = std::vector<std::string>;

bool IsReal(const SamplerOption& row) {
  return std::holds_alternative<double SamplerOptions::*>(row.member);
}
bool IsWhole(const SamplerOption& row) {
  return std::holds_alternative<int64_t SamplerOptions::*>(row.member);
}

std::string Refusal(const std::string& name, const SamplerValue& value) {
  SamplerOptions options;
  try {
    SetSamplerOption(options, name, value);
  } catch (const ArgumentError& error) {
    for (const SamplerOption& row : SamplerOptionTable()) {
      EXPECT_EQ(ValueOf(row, options), ValueOf(row, SamplerOptions()));
    }
    return error.what();
  }
  ADD_FAILURE() << name << " took " << TextOf(value);
  return "";
}

TEST(OptionTable, NamesAreUniqueAndFlagsFollow) {
  std::set<std::string_view> names;
  for (const SamplerOption& row : SamplerOptionTable()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_EQ(FindSamplerOption(row.name), &row);
    EXPECT_FALSE(row.help.empty());
  }
  EXPECT_EQ(FindSamplerOption("seed"), nullptr);
  EXPECT_EQ(FlagOf(*FindSamplerOption("repeat_last_n")), "--repeat-last-n");
  EXPECT_NE(Refusal("no", int64_t{1}).find("'no'"), std::string::npos);
}

// The defaults of llama.cpp's common_params_sampling.
TEST(OptionTable, DefaultsAreThoseOfLlamaCpp) {
  const std::vector<std::pair<const char*, const char*>> want = {
      {"logit_bias", "[]"},
      {"repeat_last_n", "64"},
      {"repeat_penalty", "1.0"},
      {"presence_penalty", "0.0"},
      {"frequency_penalty", "0.0"},
      {"dry_multiplier", "0.0"},
      {"dry_base", "1.75"},
      {"dry_allowed_length", "2"},
      {"dry_penalty_last_n", "64"},
      {"dry_sequence_breakers", R"(["\n",":","\"","*"])"},
      {"top_n_sigma", "-1.0"},
      {"top_k", "40"},
      {"typical_p", "1.0"},
      {"top_p", "0.95"},
      {"min_p", "0.05"},
      {"xtc_probability", "0.0"},
      {"xtc_threshold", "0.1"},
      {"temperature", "0.8"},
      {"dynatemp_range", "0.0"},
      {"dynatemp_exponent", "1.0"},
      {"mirostat", "0"},
      {"mirostat_tau", "5.0"},
      {"mirostat_eta", "0.1"},
      {"min_keep", "0"},
      {"samplers",
       R"(["penalties","dry","top_n_sigma","top_k","typ_p","top_p","min_p",)"
       R"("xtc","temperature"])"},
  };
  ASSERT_EQ(want.size(), SamplerOptionTable().size());
  size_t i = 0;
  for (const SamplerOption& row : SamplerOptionTable()) {
    EXPECT_EQ(row.name, want[i].first);
    EXPECT_EQ(TextOf(ValueOf(row, SamplerOptions())), want[i++].second);
  }
}

TEST(OptionTable, EveryNumberIsSetAtItsEndsAndRefusedBeyond) {
  for (const SamplerOption& row : SamplerOptionTable()) {
    if (!IsReal(row) && !IsWhole(row)) continue;
    const std::string name(row.name);
    const auto value = [&](double number) -> SamplerValue {
      if (IsReal(row)) return number;
      return static_cast<int64_t>(number);
    };
    const auto takes = [&](double number) {
      SamplerOptions options;
      SetSamplerOption(options, name, value(number));
      EXPECT_EQ(ValueOf(row, options), value(number)) << name;
      CheckSampler(options);
    };
    const double step = IsReal(row) ? 1e-6 : 1;
    if (std::isfinite(row.least)) {
      if (row.above) {
        EXPECT_NE(Refusal(name, value(row.least)).find(name),
                  std::string::npos);
        takes(row.least + 1e-9);
      } else {
        takes(row.least);
      }
      Refusal(name, value(row.least - step));
    }
    if (std::isfinite(row.most)) {
      takes(row.most);
      Refusal(name, value(row.most + step));
    } else {
      takes(1e15);
    }
    if (IsReal(row)) {
      Refusal(name, std::nan(""));
      SamplerOptions whole;
      SetSamplerOption(whole, name, int64_t{1});
      EXPECT_EQ(std::get<double>(ValueOf(row, whole)), 1);
    } else {
      Refusal(name, 1.0);
    }
    Refusal(name, Words{"1"});
  }
}

TEST(OptionTable, CheckSamplerReadsTheTable) {
  for (const SamplerOption& row : SamplerOptionTable()) {
    if (!std::isfinite(row.most)) continue;
    SamplerOptions options;
    if (const auto* real = std::get_if<double SamplerOptions::*>(&row.member)) {
      options.** real = row.most + 1;
    } else if (const auto* whole =
                   std::get_if<int64_t SamplerOptions::*>(&row.member)) {
      options.** whole = static_cast<int64_t>(row.most) + 1;
    } else {
      continue;
    }
    EXPECT_THROW(CheckSampler(options), ArgumentError) << row.name;
  }
  SamplerOptions tiny;
  tiny.repeat_penalty = 1e-300;  // quotients of logits would be infinite
  EXPECT_THROW(CheckSampler(tiny), ArgumentError);
}

TEST(OptionTable, ListsOfTexts) {
  SamplerOptions options;
  SetSamplerOption(options, "samplers",
                   Words{"top_k;typical_p", "temperature"});
  EXPECT_EQ(options.samplers,
            (std::vector{SamplerStage::kTopK, SamplerStage::kTypicalP,
                         SamplerStage::kTemperature}));
  SetSamplerOption(options, "samplers", Words{});
  EXPECT_TRUE(options.samplers.empty());
  Refusal("samplers", Words{"top_k", "top_k"});
  EXPECT_NE(Refusal("samplers", Words{"topk"}).find("typ_p"),
            std::string::npos);

  SetSamplerOption(options, "dry_sequence_breakers", Words{"a", "\n"});
  EXPECT_EQ(options.dry_sequence_breakers, (Words{"a", "\n"}));
  SetSamplerOption(options, "dry_sequence_breakers", Words{""});
  EXPECT_TRUE(options.dry_sequence_breakers.empty());
  Refusal("dry_sequence_breakers", Words{"a", ""});
  Refusal("dry_sequence_breakers", Words{std::string(41, 'a')});
  Refusal("dry_sequence_breakers", Words(17, "a"));

  const Words biases{"5=-1.25", "7=false", "0=100"};
  SetSamplerOption(options, "logit_bias", biases);
  const float never = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(options.logit_bias,
            (std::vector<LogitBias>{{5, -1.25f}, {7, never}, {0, 100}}));
  EXPECT_EQ(ValueOf(*FindSamplerOption("logit_bias"), options),
            SamplerValue(biases));
  for (const char* bad : {"", "5", "5=", "=1", "5=x", "5=1x", "-5=1", "5=101",
                          "5=nan", "5=inf", "99999999999=1", "5 =1"}) {
    Refusal("logit_bias", Words{bad});
  }
  Refusal("logit_bias", Words(1025, "1=1"));
  Refusal("logit_bias", 1.0);
}

TEST(OptionTable, WantedNamesTheRange) {
  const auto wanted = [](std::string_view name) {
    return WantedBy(*FindSamplerOption(name));
  };
  EXPECT_EQ(wanted("top_p"), "a number in (0, 1] (1: off)");
  EXPECT_EQ(wanted("temperature"), "a number up to 100 (0 and below: greedy)");
  EXPECT_EQ(wanted("top_k"), "a whole number from 0 (0: off)");
  EXPECT_EQ(wanted("repeat_last_n"),
            "a whole number from -1 to 65536 (0: off; -1: all)");
  EXPECT_EQ(wanted("logit_bias"), "at most 1024 texts");
}

}  // namespace
}  // namespace tarn
