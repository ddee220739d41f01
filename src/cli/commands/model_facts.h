// Sizes and costs that follow from a configuration alone.
#pragma once

#include <cstdint>

#include "config/accounting.h"
#include "config/model_config.h"

namespace tarn::cli {

/// Numbers of weights, by part of the model.
using ParameterCounts = ParameterParts;
inline ParameterCounts CountParameters(const ModelConfig& config) {
  return CountParameterParts(config);
}

/// Work of a language model for one more token, at a position where
/// `past_tokens` came before. A multiply-add counts as 2 FLOP; norms,
/// activations and the softmax of the head, below 1 % together in models of
/// use, are left out.
struct TokenCost {
  int64_t flop = 0;
  /// Bytes of weights that one step reads: all but the embedding, of which it
  /// reads one row of each table (a tied head reads the table as its weights).
  int64_t weight_bytes = 0;
  /// Bytes of state (linear) or of the cache (softmax) that one step reads.
  int64_t state_bytes = 0;
};
/// element_bytes: of a weight in memory (BytesPerWeight). state_bytes: of the
/// state after past_tokens tokens.
TokenCost CostOfToken(const ModelConfig& config, double element_bytes,
                      int64_t state_bytes, int64_t past_tokens);

}  // namespace tarn::cli
