#include "cli/commands/model_facts.h"

namespace tarn::cli {
namespace {

// FLOP of the mixers themselves in all layers, for one token; nothing for those
// whose cost has not been counted.
int64_t MixerFlop(const ModelConfig& config, int64_t past_tokens) {
  int64_t flop = 0;
  for (int64_t i = 0; config.HasAttention() && i < config.n_layers; ++i) {
    for (const ModelConfig& view : MixerViews(LayerView(config, i))) {
      const MixerSpec& spec = Spec(view.attention);
      if (spec.cost == nullptr) continue;
      flop += view.n_heads * spec.cost(view, past_tokens, true).step_flop;
    }
  }
  return flop;
}

}  // namespace

TokenCost CostOfToken(const ModelConfig& config, double element_bytes,
                      int64_t state_bytes, int64_t past_tokens) {
  const ParameterCounts counts = CountParameters(config);
  // A tied head multiplies by the embedding table.
  const int64_t tied =
      config.tied_head ? config.vocab_size * config.EmbeddingWidth() : 0;
  const int64_t used = counts.attention + counts.feed_forward_used +
                       counts.recurrent + counts.head + tied;
  int64_t rows = config.EmbeddingWidth();
  if (config.positions == Positions::kLearned) rows += config.d_model;
  TokenCost cost;
  cost.flop = 2 * used + MixerFlop(config, past_tokens);
  cost.weight_bytes = static_cast<int64_t>(
      element_bytes * static_cast<double>(used + counts.norms + rows));
  cost.state_bytes = state_bytes;
  return cost;
}

}  // namespace tarn::cli
