// Options of sampling that are lists, as texts and back.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/sampling/sampler_options.h"

namespace tarn {

/// "penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p",
/// "xtc", "temperature": llama.cpp's names.
std::string_view Name(SamplerStage stage);

/// The setters throw ArgumentError and leave the options unchanged.
std::vector<std::string> StageWords(const SamplerOptions& options);
void SetStageWords(SamplerOptions& options,
                   const std::vector<std::string>& words);
std::vector<std::string> BreakerWords(const SamplerOptions& options);
void SetBreakerWords(SamplerOptions& options,
                     const std::vector<std::string>& words);
std::vector<std::string> BiasWords(const SamplerOptions& options);
void SetBiasWords(SamplerOptions& options,
                  const std::vector<std::string>& words);

/// Throws ArgumentError for a list out of its range.
void CheckSamplerLists(const SamplerOptions& options);

}  // namespace tarn
