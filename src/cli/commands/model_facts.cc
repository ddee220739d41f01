#include "cli/commands/model_facts.h"

namespace tarn::cli {
namespace {

// FLOP of the attention itself in one layer, for one token.
int64_t AttentionFlop(const ModelConfig& config, int64_t past_tokens) {
  const HeadWidths head = HeadWidthsOf(config);
  const int64_t flop = config.attention == AttentionKind::kFull
                           ? SoftmaxStepFlop(head, past_tokens)
                           : LinearStepFlop(head);
  return config.n_heads * flop;
}

}  // namespace

TokenCost CostOfToken(const ModelConfig& config, int64_t element_bytes,
                      int64_t state_bytes, int64_t past_tokens) {
  const ParameterCounts counts = CountParameters(config);
  // A tied head multiplies by the embedding table.
  const int64_t tied =
      config.tied_head ? config.vocab_size * config.EmbeddingWidth() : 0;
  const int64_t used = counts.attention + counts.feed_forward +
                       counts.recurrent + counts.head + tied;
  int64_t rows = config.EmbeddingWidth();
  if (config.positions == Positions::kLearned) rows += config.d_model;
  TokenCost cost;
  cost.flop = 2 * used + config.n_layers * AttentionFlop(config, past_tokens);
  cost.weight_bytes = element_bytes * (used + counts.norms + rows);
  cost.state_bytes = state_bytes;
  return cost;
}

}  // namespace tarn::cli
