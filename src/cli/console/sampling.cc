#include "cli/console/sampling.h"

#include <cmath>
#include <cstdint>
#include <variant>

#include "core/error.h"
#include "runtime/sampling/option_table.h"

namespace tarn::cli {
namespace {

std::string HelpOf(const SamplerOption& option) {
  std::string help(option.help);
  if (!option.note.empty()) help += StrCat("; ", option.note);
  return help;
}

int64_t EndOf(double end) {
  return std::isinf(end) ? (end < 0 ? INT64_MIN : INT64_MAX)
                         : static_cast<int64_t>(end);
}

}  // namespace

void DeclareSampling(ArgumentParser& parser, SamplingLists& lists,
                     SamplerOptions& sampler) {
  for (const SamplerOption& option : SamplerOptionTable()) {
    const std::string flag = FlagOf(option), help = HelpOf(option);
    if (const auto* whole =
            std::get_if<int64_t SamplerOptions::*>(&option.member)) {
      parser.Add(flag, sampler.**whole, help)
          .Whole(EndOf(option.least), EndOf(option.most))
          .ShowDefault();
    } else if (const auto* real =
                   std::get_if<double SamplerOptions::*>(&option.member)) {
      parser.Add(flag, sampler.**real, help).ShowDefault();
    } else {
      parser
          .Add(flag, lists[option.name],
               help + "; may be given several times [default: " +
                   TextOf(ValueOf(option, sampler)) + "]")
          .OneEachTime();
    }
  }
}

void FinishSampling(const ArgumentParser& parser, const SamplingLists& lists,
                    SamplerOptions& sampler) {
  for (const auto& [name, words] : lists) {
    if (parser.Has(FlagOf(*FindSamplerOption(name)))) {
      SetSamplerOption(sampler, name, words);
    }
  }
  CheckSampler(sampler);
}

void UseDefaultSampling(const ArgumentParser& parser,
                        const GenerationDefaults& defaults,
                        SamplerOptions& sampler) {
  if (!defaults.sampler_given) return;
  for (const SamplerOption& option : SamplerOptionTable()) {
    if (parser.Has(FlagOf(option))) continue;
    SetSamplerOption(sampler, option.name, ValueOf(option, defaults.sampler));
  }
}

std::vector<std::string> SamplingFlags() {
  std::vector<std::string> flags;
  for (const SamplerOption& option : SamplerOptionTable()) {
    flags.push_back(FlagOf(option));
  }
  return flags;
}

}  // namespace tarn::cli
