// Writing text with the C interface.
#include "runtime/generate/generate.h"

#include <algorithm>
#include <cstring>

#include "capi/guard.h"
#include "capi/text_options.h"
#include "runtime/sampling/option_table.h"

namespace tarn::capi {
namespace {

// A field of the C struct and the option that it is.
template <typename T>
struct SamplerField {
  T tarn_sampler_options::*theirs;
  T SamplerOptions::*ours;
};

constexpr SamplerField<int64_t> kWholeFields[] = {
    {&tarn_sampler_options::top_k, &SamplerOptions::top_k},
    {&tarn_sampler_options::min_keep, &SamplerOptions::min_keep},
    {&tarn_sampler_options::repeat_last_n, &SamplerOptions::repeat_last_n},
    {&tarn_sampler_options::dry_allowed_length,
     &SamplerOptions::dry_allowed_length},
    {&tarn_sampler_options::dry_penalty_last_n,
     &SamplerOptions::dry_penalty_last_n},
    {&tarn_sampler_options::mirostat, &SamplerOptions::mirostat},
};
constexpr SamplerField<double> kRealFields[] = {
    {&tarn_sampler_options::temperature, &SamplerOptions::temperature},
    {&tarn_sampler_options::top_p, &SamplerOptions::top_p},
    {&tarn_sampler_options::min_p, &SamplerOptions::min_p},
    {&tarn_sampler_options::typical_p, &SamplerOptions::typical_p},
    {&tarn_sampler_options::top_n_sigma, &SamplerOptions::top_n_sigma},
    {&tarn_sampler_options::xtc_probability, &SamplerOptions::xtc_probability},
    {&tarn_sampler_options::xtc_threshold, &SamplerOptions::xtc_threshold},
    {&tarn_sampler_options::dynatemp_range, &SamplerOptions::dynatemp_range},
    {&tarn_sampler_options::dynatemp_exponent,
     &SamplerOptions::dynatemp_exponent},
    {&tarn_sampler_options::repeat_penalty, &SamplerOptions::repeat_penalty},
    {&tarn_sampler_options::presence_penalty,
     &SamplerOptions::presence_penalty},
    {&tarn_sampler_options::frequency_penalty,
     &SamplerOptions::frequency_penalty},
    {&tarn_sampler_options::dry_multiplier, &SamplerOptions::dry_multiplier},
    {&tarn_sampler_options::dry_base, &SamplerOptions::dry_base},
    {&tarn_sampler_options::mirostat_tau, &SamplerOptions::mirostat_tau},
    {&tarn_sampler_options::mirostat_eta, &SamplerOptions::mirostat_eta},
};

// Of a list of the caller's, before it is read.
void CheckList(const void* list, uint64_t count, uint64_t most,
               const std::string& name) {
  if (count > 0) Require(list, name.c_str());
  if (count > most) {
    throw ArgumentError(name, StrCat("at most ", most), StrCat(count));
  }
}

void ReadLists(const tarn_sampler_options& c, const std::string& name,
               SamplerOptions& sampler) {
  const std::string breakers = name + ".dry_sequence_breakers";
  CheckList(c.dry_sequence_breakers, c.dry_sequence_breaker_count,
            kMaxDryBreakers, breakers);
  if (c.dry_sequence_breakers != nullptr) {
    sampler.dry_sequence_breakers.clear();
    for (uint64_t i = 0; i < c.dry_sequence_breaker_count; ++i) {
      Require(c.dry_sequence_breakers[i], breakers.c_str());
      sampler.dry_sequence_breakers.emplace_back(c.dry_sequence_breakers[i]);
    }
  }
  CheckList(c.logit_bias, c.logit_bias_count, kMaxLogitBiases,
            name + ".logit_bias");
  for (uint64_t i = 0; i < c.logit_bias_count; ++i) {
    sampler.logit_bias.push_back({c.logit_bias[i].token, c.logit_bias[i].bias});
  }
  if (c.samplers != nullptr) {
    SetSamplerOption(sampler, "samplers", std::vector<std::string>{c.samplers});
  }
}

}  // namespace

SamplerOptions SamplerOptionsOf(const tarn_sampler_options* options,
                                const char* name) {
  const tarn_sampler_options c = ReadOptions(
      options, tarn_sampler_options TARN_SAMPLER_OPTIONS_INIT, name);
  SamplerOptions sampler;
  for (const SamplerField<int64_t>& field : kWholeFields) {
    sampler.*field.ours = c.*field.theirs;
  }
  for (const SamplerField<double>& field : kRealFields) {
    sampler.*field.ours = c.*field.theirs;
  }
  sampler.seed = c.seed;
  sampler.stream = c.stream;
  ReadLists(c, name, sampler);
  return sampler;
}

void FillSamplerOptions(const SamplerOptions& sampler,
                        tarn_sampler_options* options) {
  const size_t size = options->struct_size;
  if (size < sizeof(size_t)) return;
  // Fields that an earlier version does not have lie outside its struct.
  tarn_sampler_options filled = TARN_SAMPLER_OPTIONS_INIT;
  const size_t known = std::min(size, sizeof(filled));
  std::memcpy(&filled, options, known);
  for (const SamplerField<int64_t>& field : kWholeFields) {
    filled.*field.theirs = sampler.*field.ours;
  }
  for (const SamplerField<double>& field : kRealFields) {
    filled.*field.theirs = sampler.*field.ours;
  }
  std::memcpy(options, &filled, known);
}

}  // namespace tarn::capi

tarn_status tarn_generate(const tarn_model* model, tarn_state* state,
                          const int32_t* prompt, uint64_t count,
                          const tarn_generate_options* options,
                          uint64_t* generated, tarn_error** error) {
  return tarn::capi::Guard(error, [&] {
    tarn::capi::RequireModelOf(model, state);
    const tarn_generate_options c = tarn::capi::ReadOptions(
        options, tarn_generate_options TARN_GENERATE_OPTIONS_INIT, "options");
    const tarn::GenerateOptions generate =
        tarn::capi::GenerateOptionsOf(*model, c);
    const auto tell = [&c](const tarn::GeneratedToken& token) {
      return c.callback == nullptr ||
             c.callback(c.user, token.id, token.text.data(),
                        token.text.size()) == 0;
    };
    const auto stop = [&c] {
      return c.cancel != nullptr && c.cancel(c.user) != 0;
    };
    const tarn::GenerateResult result =
        tarn::Generate(model->model, model->tokenizer, state->state,
                       tarn::capi::Tokens(prompt, count), generate, tell, stop);
    if (result.stopped) {
      throw tarn::Error(
          tarn::ErrorCode::kInterrupted,
          tarn::StrCat("generate: cancelled after ", result.tokens, " tokens"));
    }
    const bool ended = result.end == tarn::SequenceEnd::kStopToken ||
                       result.end == tarn::SequenceEnd::kGrammar;
    if (ended && !result.held.empty()) {
      tell({.id = -1, .text = result.held, .ms = 0});
    }
    if (generated != nullptr) {
      *generated = static_cast<uint64_t>(result.tokens);
    }
  });
}
