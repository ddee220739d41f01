#include "cli/model_facts.h"

#include <string>

namespace tarn::cli {
namespace {

int64_t Elements(const std::vector<int64_t>& shape) {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
}

bool Contains(const std::string& name, const char* part) {
  return name.find(part) != std::string::npos;
}

// FLOP of the attention itself in one layer, for one token.
int64_t AttentionFlop(const ModelConfig& config, int64_t past_tokens) {
  const int64_t heads = config.n_heads;
  const int64_t d_key = config.d_key, d_value = config.d_value;
  if (config.attention == AttentionKind::kFull) {
    // q.k and the weighted sum of values, over the past and this token.
    return 2 * heads * (past_tokens + 1) * (d_key + d_value);
  }
  // S += k v^T and S^T q: 2 K V each; z += k and z.q: K and 2 K; the division.
  return heads * (4 * d_key * d_value + 3 * d_key + d_value);
}

}  // namespace

ParameterCounts CountParameters(const ModelConfig& config) {
  ParameterCounts counts;
  for (const auto& [name, shape] : WeightShapes(config)) {
    int64_t& part = Contains(name, "embedding")     ? counts.embedding
                    : Contains(name, ".attention.") ? counts.attention
                    : Contains(name, ".linear")     ? counts.feed_forward
                    : Contains(name, "norm")        ? counts.norms
                                                    : counts.head;
    part += Elements(shape);
  }
  return counts;
}

TokenCost CostOfToken(const ModelConfig& config, int64_t element_bytes,
                      int64_t state_bytes, int64_t past_tokens) {
  const ParameterCounts counts = CountParameters(config);
  // A tied head multiplies by the embedding table.
  const int64_t tied =
      config.tied_head ? config.vocab_size * config.EmbeddingWidth() : 0;
  const int64_t used =
      counts.attention + counts.feed_forward + counts.head + tied;
  int64_t rows = config.EmbeddingWidth();
  if (config.positions == Positions::kLearned) rows += config.d_model;
  TokenCost cost;
  cost.flop = 2 * used + config.n_layers * AttentionFlop(config, past_tokens);
  cost.weight_bytes = element_bytes * (used + counts.norms + rows);
  cost.state_bytes = state_bytes;
  return cost;
}

}  // namespace tarn::cli
