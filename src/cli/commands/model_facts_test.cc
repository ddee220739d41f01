#include "cli/commands/model_facts.h"

#include <gtest/gtest.h>

namespace tarn::cli {
namespace {

ModelConfig Small() {
  ModelConfig config;
  config.vocab_size = 10;
  config.d_model = 8;
  config.n_layers = 2;
  config.n_heads = 2;
  config.d_ff = 20;
  config.max_positions = 6;
  FinishConfig(config);
  return config;
}

TEST(ModelFacts, CountsParametersByPart) {
  const ParameterCounts counts = CountParameters(Small());
  EXPECT_EQ(counts.embedding, 10 * 8);
  EXPECT_EQ(counts.positions, 6 * 8);
  EXPECT_EQ(counts.attention, 2 * 4 * (8 * 8 + 8));
  EXPECT_EQ(counts.feed_forward, 2 * (20 * 8 + 20 + 8 * 20 + 8));
  EXPECT_EQ(counts.norms, (2 * 2 + 1) * 16);
  EXPECT_EQ(counts.head, 10 * 8 + 10);
  int64_t total = 0;
  for (const auto& [name, shape] : WeightShapes(Small())) {
    int64_t elements = 1;
    for (int64_t size : shape) elements *= size;
    total += elements;
  }
  EXPECT_EQ(counts.Total(), total);
}

TEST(ModelFacts, ATiedHeadCostsTheSameWork) {
  ModelConfig tied = Small();
  tied.tied_head = true;
  EXPECT_EQ(CountParameters(tied).head, 10);
  EXPECT_EQ(CostOfToken(tied, 4, 0, 0).flop,
            CostOfToken(Small(), 4, 0, 0).flop);
}

TEST(ModelFacts, LinearCostIsConstantSoftmaxCostGrows) {
  ModelConfig config = Small();
  EXPECT_EQ(CostOfToken(config, 4, 0, 0).flop,
            CostOfToken(config, 4, 0, 1000).flop);
  // 2 layers x 2 heads x (S, z, read-out, denominator) at 4 wide.
  const int64_t used = CountParameters(config).Total() - (80 + 48) - 80;
  EXPECT_EQ(CostOfToken(config, 4, 0, 0).flop,
            2 * used + 2 * 2 * (4 * 16 + 12));
  config.attention = MixerKind("full");
  EXPECT_EQ(
      CostOfToken(config, 4, 0, 101).flop - CostOfToken(config, 4, 0, 100).flop,
      2 * 2 * 2 * (4 + 4));
}

TEST(ModelFacts, BytesFollowTheWeightType) {
  const ModelConfig config = Small();
  const TokenCost f32 = CostOfToken(config, 4, 100, 0);
  EXPECT_EQ(f32.state_bytes, 100);
  EXPECT_EQ(f32.weight_bytes, 2 * CostOfToken(config, 2, 0, 0).weight_bytes);
  // All weights but the tables, of which one row each is read.
  EXPECT_EQ(f32.weight_bytes,
            4 * (CountParameters(config).Total() - (80 + 48) + 8 + 8));
}

}  // namespace
}  // namespace tarn::cli
