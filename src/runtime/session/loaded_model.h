// What a model directory holds, opened for use.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "runtime/model/model.h"
#include "runtime/sampling/sampler.h"
#include "text/tokenizer.h"

namespace tarn {

/// What a directory says about writing text: defaults for callers that do not
/// choose themselves.
struct GenerationDefaults {
  std::vector<int32_t> stop_tokens;  // sorted, within the tokenizer's table
  SamplerOptions sampler;
  bool sampler_given = false;  // by the directory; else it is tarn's own
};

/// A model and the tokenizer whose ids it knows: what the command line, the C
/// interface and Python hold. Immutable and thread-safe, as both parts are.
struct LoadedModel {
  Model model;
  Tokenizer tokenizer;
  GenerationDefaults defaults;

  /// Opens a directory's config.json, model.safetensors, labels.json where
  /// there is one, tokenizer.json, and generation_config.json where there is
  /// one, or all of them from a GGUF file. Errors as
  /// Model::Open, OpenTokenizer (model/files.h) and ReadGenerationConfig.
  static Result<LoadedModel> Open(const ModelPath& path,
                                  const ModelOptions& options = {});
};

}  // namespace tarn
