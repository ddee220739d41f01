// generation_config.json: where a published model's texts end, and how its
// authors draw from it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "importers/model_files.h"

namespace tarn {

inline constexpr size_t kMaxPublishedStopTokens = 1024;

/// The options of drawing; those that the file leaves out are transformers'.
struct PublishedSampling {
  double temperature = 1.0;
  int64_t top_k = 50;
  double top_p = 1.0;
  double min_p = 0.0;
  double typical_p = 1.0;
  double repetition_penalty = 1.0;  // for all tokens of the text
};

struct PublishedGeneration {
  /// Sorted, each once; of models whose files name one that they do not have,
  /// that one too.
  std::vector<int32_t> stop_tokens;
  /// Only where the file says do_sample.
  std::optional<PublishedSampling> sampling;
};

/// Reads the model's generation_config.json, if there is one: eos_token_id, a
/// number or a list, and with do_sample temperature, top_k, top_p, min_p,
/// typical_p, repetition_penalty.
/// Without an eos_token_id there, that of config.json counts if it is a
/// published model's. Other keys are not read. FormatError names the key;
/// IoError.
Result<PublishedGeneration> ReadGenerationConfig(const ModelPath& model);

}  // namespace tarn
