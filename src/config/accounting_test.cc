#include "config/accounting.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "core/test_util.h"

namespace tarn {
namespace {

ModelConfig RandomConfig(Arch arch, std::mt19937& random) {
  const auto pick = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random()) % (high - low + 1);
  };
  ModelConfig config;
  config.arch = arch;
  config.vocab_size = pick(2, 300);
  config.n_heads = pick(1, 4);
  config.d_model = 2 * config.n_heads * pick(1, 9);
  config.n_layers = pick(1, 5);
  if (pick(0, 1) == 1) config.d_key = 2 * pick(1, 9);
  if (pick(0, 1) == 1) config.d_value = pick(1, 9);
  config.d_ff = pick(1, 90);
  config.max_positions = pick(1, 50);
  config.positions = static_cast<Positions>(pick(0, 2));
  config.final_norm = pick(0, 1) == 1;
  config.norm = static_cast<Norm>(pick(0, 4));
  config.tied_head = pick(0, 1) == 1 && arch != Arch::kEncoder;
  config.kernel_size = pick(1, 6);
  if (pick(0, 2) == 0) config.attention = MixerKind("full");
  if (pick(0, 3) == 0) {
    config.attention = MixerKind("aft-full");
    config.d_key = config.d_value = 0;  // this kind needs them equal
  }
  if (pick(0, 2) == 0) SetConfigField(config, "feature_map", "favor");
  constexpr const char* kParts[] = {
      "mlp",  "swiglu", "geglu",       "relu2",
      "none", "moe",    "channel-mix", "gated-channel-mix"};
  // The last two are for decoders alone, and pairs of stacks take the first
  // four.
  const int last = arch == Arch::kDecoder ? 7 : arch == Arch::kEncoder ? 5 : 3;
  config.feed_forward = FeedForwardOf(kParts[pick(0, last)]);
  if (arch == Arch::kSeq2seq) config.n_decoder_layers = pick(1, 4);
  const bool classify =
      arch == Arch::kEncoder || (arch >= Arch::kRnn && pick(0, 1) == 1);
  if (classify) {
    config.task = Task::kClassify;
    config.n_classes = pick(2, 9);
    config.tied_head = false;
    config.bidirectional = arch == Arch::kLstm && pick(0, 1) == 1;
  }
  if (classify && arch <= Arch::kLstm && arch != Arch::kRnn &&
      pick(0, 1) == 1) {
    config.task = Task::kCtc;
    config.input_dim = pick(1, 50);
  }
  if (arch == Arch::kDecoder && pick(0, 1) == 1) {
    config.task = Task::kImage;
    config.n_mixtures = pick(1, 12);
    config.image_height = config.image_width = 5;
    config.image_channels = 3;
    config.vocab_size = 256;
    config.tied_head = false;
  }
  return config;
}

// Counts the parts by the names of the weights.
ParameterParts PartsByName(const ModelConfig& config) {
  ParameterParts parts;
  for (const auto& [name, shape] : WeightShapes(config)) {
    if (IsBuffer(name)) continue;
    int64_t elements = 1;
    for (const int64_t size : shape) elements *= size;
    const auto has = [&name = name](const char* part) {
      return name.find(part) != std::string::npos;
    };
    (has("pos_embedding")               ? parts.positions
     : has("embedding")                 ? parts.embedding
     : has("input_projection")          ? parts.embedding
     : has("attention.")                ? parts.attention
     : has("linear1") || has("linear2") ? parts.feed_forward
     : has("linear3")                   ? parts.feed_forward
     : has("token_shift")               ? parts.feed_forward
     : has("router")                    ? parts.feed_forward
     : has("gate_shift")                ? parts.feed_forward
     : has(".gate.")                    ? parts.feed_forward
     : has("norm")                      ? parts.norms
     : has("predictor")                 ? parts.head
                                        : parts.recurrent) += elements;
  }
  return parts;
}

class AccountingArch : public testing::TestWithParam<Arch> {};

TEST_P(AccountingArch, CountsEqualTheTensorsOfThirtyConfigurations) {
  std::mt19937 random(static_cast<uint32_t>(GetParam()) + 1);
  for (int trial = 0; trial < 30; ++trial) {
    const ModelConfig config = RandomConfig(GetParam(), random);
    const ParameterParts got = CountParameterParts(config);
    const ParameterParts want = PartsByName(config);
    EXPECT_EQ(got.embedding, want.embedding);
    EXPECT_EQ(got.positions, want.positions);
    EXPECT_EQ(got.attention, want.attention);
    EXPECT_EQ(got.feed_forward, want.feed_forward);
    EXPECT_EQ(got.norms, want.norms);
    EXPECT_EQ(got.recurrent, want.recurrent);
    EXPECT_EQ(got.head, want.head);
    EXPECT_EQ(got.Total(), ParameterCount(config));
  }
}

INSTANTIATE_TEST_SUITE_P(All, AccountingArch,
                         testing::Values(Arch::kDecoder, Arch::kEncoder,
                                         Arch::kSeq2seq, Arch::kRnn,
                                         Arch::kLstm, Arch::kCnn),
                         [](const auto& info) { return Name(info.param); });

TEST(Accounting, ATokenReadsTheExpertsItGoesTo) {
  ModelConfig config;
  config.d_model = 6;
  config.d_ff = 7;
  config.n_layers = config.n_heads = 2;
  config.feed_forward = FeedForwardOf("moe");
  SetConfigField(config, "experts", "5");
  SetConfigField(config, "experts_per_token", "2");
  SetConfigField(config, "d_shared", "3");
  const ParameterParts parts = CountParameterParts(config);
  const int64_t expert = 3 * 6 * 7, shared = 3 * 6 * 3, router = 5 * 6;
  EXPECT_EQ(parts.feed_forward, 2 * (router + 5 * expert + shared));
  EXPECT_EQ(parts.feed_forward_used, 2 * (router + 2 * expert + shared));
  SetConfigField(config, "experts_per_token", "6");
  EXPECT_EQ("experts_per_token",
            ErrorOf([&] { FinishConfig(config); }).where());
  SetConfigField(config, "experts_per_token", "5");
  SetConfigField(config, "d_shared", "0");
  SetConfigField(config, "shared_gate", "true");
  EXPECT_EQ("shared_gate", ErrorOf([&] { FinishConfig(config); }).where());
}

TEST(Accounting, FiguresOfTheLiterature) {
  // D = 256: 789,760 a layer, 3,159,552 / 6,318,592 / 12,636,672 for 4, 8, 16
  // layers with the final norm.
  for (const auto& [layers, want] : std::vector<std::pair<int64_t, int64_t>>{
           {4, 3'159'552}, {8, 6'318'592}, {16, 12'636'672}}) {
    ModelConfig config;
    config.d_model = 256;
    config.n_layers = layers;
    const ParameterParts parts = CountParameterParts(config);
    EXPECT_EQ(parts.attention + parts.feed_forward + parts.norms, want);
    // 12 D^2 a block; biases and norms, 13 D, are the rest.
    EXPECT_EQ(want - 2 * 256, layers * (TextbookParameters(256, 0) + 13 * 256));
  }
  EXPECT_EQ(TextbookParameters(256, 100), 12 * 256 * 256 + 100 * 256);
}

}  // namespace
}  // namespace tarn
