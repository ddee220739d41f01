// What a model directory holds, opened for use.
#pragma once

#include <string>

#include "core/error.h"
#include "runtime/model/model.h"
#include "text/tokenizer.h"

namespace tarn {

/// A model and the tokenizer whose ids it knows: what the command line, the C
/// interface and Python hold. Immutable and thread-safe, as both parts are.
struct LoadedModel {
  Model model;
  Tokenizer tokenizer;

  /// Opens config.json, model.safetensors, labels.json where there is one, and
  /// tokenizer.json. Errors as Model::Open and Tokenizer::Open.
  static Result<LoadedModel> Open(const std::string& dir,
                                  const ModelOptions& options = {});
};

}  // namespace tarn
