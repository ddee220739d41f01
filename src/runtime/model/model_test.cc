// The runtime against plain loops in double, over every configuration.
#include "runtime/model/model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <tuple>

#include "kernels/simd_target.h"
#include "reference/test_model.h"

namespace tarn::testing {
namespace {

const ConfigVariant kVariants[] = {
    {"Defaults", [](ModelConfig&) {}},
    {"PostNormRelu",
     [](ModelConfig& c) {
       c.norm = Norm::kPost;
       c.activation = Activation::kRelu;
     }},
    {"NoFinalNorm", [](ModelConfig& c) { c.final_norm = false; }},
    {"TiedHead", [](ModelConfig& c) { c.tied_head = true; }},
    {"NoPositions", [](ModelConfig& c) { c.positions = Positions::kNone; }},
    {"SinusoidalAdd",
     [](ModelConfig& c) { c.positions = Positions::kSinusoidal; }},
    {"SinusoidalConcat",
     [](ModelConfig& c) {
       c.positions = Positions::kSinusoidal;
       c.position_combine = PositionCombine::kConcat;
     }},
    {"RotaryBefore", [](ModelConfig& c) { c.positions = Positions::kRotary; }},
    {"RotaryAfterExact",
     [](ModelConfig& c) {
       c.positions = Positions::kRotary;
       c.rotary_place = RotaryPlace::kAfter;
     }},
    {"RotaryAfterCompat",
     [](ModelConfig& c) {
       c.positions = Positions::kRotary;
       c.rotary_place = RotaryPlace::kAfter;
       SetKey(c, "denominator", Denominator::kCompat);
       SetKey(c, "eps", 0.5);
     }},
    {"RotaryAfterNone",
     [](ModelConfig& c) {
       c.positions = Positions::kRotary;
       c.rotary_place = RotaryPlace::kAfter;
       SetKey(c, "denominator", Denominator::kNone);
     }},
    {"Compat",
     [](ModelConfig& c) {
       SetKey(c, "denominator", Denominator::kCompat);
       SetKey(c, "eps", 0.5);
     }},
    {"IdentityNoDenominator",
     [](ModelConfig& c) {
       SetKey(c, "feature_map", FeatureMap::kIdentity);
       SetKey(c, "denominator", Denominator::kNone);
     }},
    {"Relu",
     [](ModelConfig& c) { SetKey(c, "feature_map", FeatureMap::kRelu); }},
    {"Relu2Sinusoidal",
     [](ModelConfig& c) {
       SetKey(c, "feature_map", FeatureMap::kRelu2);
       c.positions = Positions::kSinusoidal;
     }},
    {"Relu2RotaryAfter",
     [](ModelConfig& c) {
       SetKey(c, "feature_map", FeatureMap::kRelu2);
       c.positions = Positions::kRotary;
       c.rotary_place = RotaryPlace::kAfter;
     }},
    {"ReluRotaryBefore",
     [](ModelConfig& c) {
       SetKey(c, "feature_map", FeatureMap::kRelu);
       c.positions = Positions::kRotary;
     }},
    {"Poly2",
     [](ModelConfig& c) { SetKey(c, "feature_map", FeatureMap::kPoly2); }},
    {"Poly2RotaryCompat",
     [](ModelConfig& c) {
       SetKey(c, "feature_map", FeatureMap::kPoly2);
       SetKey(c, "denominator", Denominator::kCompat);
       SetKey(c, "eps", 0.5);
       c.positions = Positions::kRotary;
     }},
    {"Poly2SignedPost",
     [](ModelConfig& c) {
       SetKey(c, "feature_map", FeatureMap::kPoly2);
       SetKey(c, "denominator", Denominator::kSigned);
       c.norm = Norm::kPost;
     }},
    {"Elu1SignedRotary",
     [](ModelConfig& c) {
       SetKey(c, "denominator", Denominator::kSigned);
       c.positions = Positions::kRotary;
     }},
    {"ReluSigned",
     [](ModelConfig& c) {
       SetKey(c, "feature_map", FeatureMap::kRelu);
       SetKey(c, "denominator", Denominator::kSigned);
     }},
    {"Softmax", [](ModelConfig& c) { c.attention = MixerKind("full"); }},
    {"SoftmaxRotaryPost",
     [](ModelConfig& c) {
       c.attention = MixerKind("full");
       c.positions = Positions::kRotary;
       c.norm = Norm::kPost;
     }},
    {"RmsNorm", [](ModelConfig& c) { c.norm_kind = NormKind::kRms; }},
    {"SwigluPost",
     [](ModelConfig& c) {
       c.feed_forward = FeedForwardOf("swiglu");
       c.norm = Norm::kPost;
     }},
    {"NoFeedForward",
     [](ModelConfig& c) { c.feed_forward = FeedForwardOf("none"); }},
    {"Mixture", [](ModelConfig& c) { c.feed_forward = FeedForwardOf("moe"); }},
    {"PartsByLayerPost",
     [](ModelConfig& c) {
       c.n_layers = 4;
       SetLayers(c,
                 "linear:feed_forward=none,full:feed_forward=geglu,"
                 "linear:feed_forward=relu2,full");
       c.norm = Norm::kPost;
     }},
    {"RmsSwigluSoftmaxPost",
     [](ModelConfig& c) {
       SetRmsSwiglu(c);
       c.attention = MixerKind("full");
       c.norm = Norm::kPost;
     }},
    {"LinearFull", [](ModelConfig& c) { SetLayers(c, "linear,full"); }},
    {"LinearFullRotaryRmsSwiglu",
     [](ModelConfig& c) {
       SetLayers(c, "linear,full");
       SetRmsSwiglu(c);
       c.positions = Positions::kRotary;
     }},
    // Layers that differ by their options: none of the maps is the model's.
    {"FullPoly2Relu2Relu",
     [](ModelConfig& c) {
       c.n_layers = 5;
       SetLayers(c,
                 "full,linear:feature_map=poly2,linear:feature_map=relu2:"
                 "denominator=compat:eps=0.5,linear:feature_map=relu");
     }},
    {"FullLinearRotaryAfterPost",
     [](ModelConfig& c) {
       c.n_layers = 3;
       SetLayers(c, "full,linear");
       c.positions = Positions::kRotary;
       c.rotary_place = RotaryPlace::kAfter;
       c.norm = Norm::kPost;
     }},
    {"AftSimple", SetAftSimple},
    {"AftSimpleRmsSwigluPost",
     [](ModelConfig& c) {
       SetAftSimple(c);
       SetRmsSwiglu(c);
       c.norm = Norm::kPost;
     }},
    {"LinearAftSimple",
     [](ModelConfig& c) { SetLayers(c, "linear,aft-simple"); }},
    {"LinearAftSimpleFullRmsSwiglu",
     [](ModelConfig& c) {
       c.n_layers = 3;
       SetLayers(c, "linear,aft-simple,full");
       SetRmsSwiglu(c);
     }},
    {"RetNet", [](ModelConfig& c) { SetLayers(c, "retnet"); }},
    {"Lightning", [](ModelConfig& c) { SetLayers(c, "lightning"); }},
    {"Mamba1", [](ModelConfig& c) { SetLayers(c, "mamba1"); }},
    {"ShortConv", [](ModelConfig& c) { SetLayers(c, "short-conv"); }},
    {"RgLru", [](ModelConfig& c) { SetLayers(c, "rg-lru"); }},
    {"Mlstm", [](ModelConfig& c) { SetLayers(c, "mlstm"); }},
    {"MlstmUncapped",
     [](ModelConfig& c) { SetLayers(c, "mlstm:gate_softcap=0.0,full"); }},
    {"GatedConvolutions",
     [](ModelConfig& c) {
       SetLayers(c,
                 "short-conv:conv_bias=true:conv_width=7:d_value=9,"
                 "rg-lru:conv_width=0");
     }},
    {"Mamba2", [](ModelConfig& c) { SetLayers(c, "mamba2"); }},
    {"Gla", [](ModelConfig& c) { SetLayers(c, "gla"); }},
    {"Hgrn2", [](ModelConfig& c) { SetLayers(c, "hgrn2"); }},
    {"DeltaNet", [](ModelConfig& c) { SetLayers(c, "deltanet"); }},
    {"Gdn", [](ModelConfig& c) { SetLayers(c, "gdn"); }},
    {"Kda", [](ModelConfig& c) { SetLayers(c, "kda"); }},
    {"NormLinear", [](ModelConfig& c) { SetLayers(c, "norm-linear"); }},
    {"NormLinearMaps",
     [](ModelConfig& c) {
       c.n_layers = 4;
       SetLayers(c,
                 "norm-linear:qk_map=hadamard,norm-linear:qk_map=t2r:"
                 "unit_queries=true:unit_keys=true,norm-linear:qk_map=hedgehog:"
                 "divided_sums=true,norm-linear:qk_map=dpfp:d_value=9");
     }},
    {"Rwkv6", [](ModelConfig& c) { SetLayers(c, "rwkv6"); }},
    {"Rwkv7", [](ModelConfig& c) { SetLayers(c, "rwkv7"); }},
    {"RetNetRotaryPost",
     [](ModelConfig& c) {
       SetLayers(c, "retnet");
       c.positions = Positions::kRotary;
       c.norm = Norm::kPost;
     }},
    {"GroupedGdnFullRotaryRmsSwiglu",
     [](ModelConfig& c) {
       c.n_heads = 4;
       SetKey(c, "key_heads", 2);
       c.n_layers = 3;
       SetLayers(c, "gdn,kda:negative_eigenvalues=true,full");
       SetRmsSwiglu(c);
       c.positions = Positions::kRotary;
     }},
    {"GroupedMamba2NoConvolution",
     [](ModelConfig& c) {
       c.n_heads = 4;
       SetKey(c, "key_heads", 1);
       SetLayers(c, "mamba2,mamba2:conv_width=0,kda:conv_width=2:gate_rank=3");
       c.n_layers = 3;
     }},
    {"Mamba1NoConvolution",
     [](ModelConfig& c) {
       SetLayers(c, "mamba1:conv_width=0:feed_forward=none,mamba1:gate_rank=3");
     }},
    {"Parallel", [](ModelConfig& c) { SetLayers(c, "mamba2+full"); }},
    {"ParallelRotaryWithFactorsAndHeads",
     [](ModelConfig& c) {
       SetLayers(c,
                 "gdn:n_heads=2:d_value=3+full:n_heads=4:branch_factor=-0.5,"
                 "mamba1+linear+gated-full:key_heads=1");
       SetRmsSwiglu(c);
       c.norm = Norm::kAfter;
       c.positions = Positions::kRotary;
     }},
    {"GatedSoftmax", [](ModelConfig& c) { SetLayers(c, "gated-full"); }},
    {"GatedSoftmaxPlain",
     [](ModelConfig& c) {
       SetLayers(c,
                 "gated-full:output_gate=false,"
                 "gated-full:query_key_norm=false:key_heads=1");
       c.positions = Positions::kRotary;
     }},
    {"GdnGatedSoftmaxPartialRotary",
     [](ModelConfig& c) {
       c.n_heads = 4;
       SetKey(c, "key_heads", 2);
       c.n_layers = 4;
       SetKey(c, "rotary_width", 4);
       SetLayers(c, "gdn,gdn,gdn,gated-full");
       SetRmsSwiglu(c);
       c.positions = Positions::kRotary;
     }},
    {"ChannelMix", SetChannelMix},
    {"ChannelMixSoftmaxRmsPost",
     [](ModelConfig& c) {
       SetChannelMix(c);
       c.attention = MixerKind("full");
       c.norm_kind = NormKind::kRms;
       c.norm = Norm::kPost;
     }},
    {"Rwkv7ChannelMix",
     [](ModelConfig& c) {
       SetLayers(c, "rwkv7");
       SetChannelMix(c);
     }},
    // Narrow heads: fewer columns than the rows that are mixed.
    {"GdnFullRwkv6ChannelMixRotary",
     [](ModelConfig& c) {
       c.d_key = c.d_value = 2;
       c.n_layers = 3;
       SetLayers(c, "gdn,gated-full:output_gate=false,rwkv6");
       SetChannelMix(c);
       c.positions = Positions::kRotary;
     }},
    {"SwigluWithBiasesReluWithout",
     [](ModelConfig& c) {
       SetLayers(c, "linear:feed_forward=swiglu,full:feed_forward=relu2");
       c.feed_forward_bias = FeedForwardBias::kAll;
     }},
    {"MlpWithoutBiases",
     [](ModelConfig& c) { c.feed_forward_bias = FeedForwardBias::kNone; }},
    {"HeadWithoutBias", [](ModelConfig& c) { c.head_bias = false; }},
    {"TiedHeadWithoutBias",
     [](ModelConfig& c) {
       c.head_bias = false;
       c.tied_head = true;
     }},
    {"Rwkv7ValueResidualInputNorm",
     [](ModelConfig& c) {
       c.n_layers = 3;
       SetLayers(c, "rwkv7:value_residual=true");
       SetChannelMix(c);
       c.input_norm = true;
     }},
    {"FullRwkv7ValueResidual",
     [](ModelConfig& c) {
       c.n_layers = 5;
       SetLayers(c, "full,rwkv7:value_residual=true:gate_rank=3+linear,rwkv7");
       c.norm = Norm::kBoth;
       c.input_norm = true;
       c.norm_kind = NormKind::kRms;
     }},
    {"GatedBiases",
     [](ModelConfig& c) {
       c.n_layers = 4;
       SetLayers(c,
                 "mamba2:recurrent_in_bias=true,kda:recurrent_in_bias=true:"
                 "recurrent_out_bias=true,hgrn2:recurrent_in_bias=true,"
                 "mamba1:recurrent_in_bias=true:recurrent_out_bias=true");
     }},
    {"Hgrn2LearnedBounds",
     [](ModelConfig& c) {
       c.n_layers = 3;
       SetLayers(c, "hgrn2:learned_bounds=true");
     }},
    {"FullHgrn2LearnedBounds",
     [](ModelConfig& c) {
       c.n_layers = 5;
       SetLayers(c, "full,hgrn2:learned_bounds=true+linear,hgrn2");
       SetRmsSwiglu(c);
     }},
    {"GatedChannelMix",
     [](ModelConfig& c) {
       c.n_layers = 3;
       SetLayers(c, "rwkv6:shift_rank=3:output_norm_eps=0.1,full,rwkv6");
       c.feed_forward = FeedForwardOf("gated-channel-mix");
     }},
    {"Rwkv7Ranks",
     [](ModelConfig& c) {
       c.n_layers = 3;
       SetLayers(c, "rwkv7:value_residual=true:gate_rank=3");
       SetKey(c, "rate_rank", 5);
       SetKey(c, "output_gate_rank", 4);
       SetKey(c, "value_rank", 7);
       SetKey(c, "unit_eps", 0.1);
     }},
    {"OtherGates",
     [](ModelConfig& c) {
       c.n_layers = 5;
       SetLayers(c,
                 "gla:gate_activation=none,gdn:gate_activation=sigmoid,"
                 "deltanet:gate_activation=silu,kda:gate_bias=true,"
                 "kda:gate_activation=none:output_norm_eps=0.1");
     }},
    {"Rwkv7Rwkv6Rms",
     [](ModelConfig& c) {
       SetLayers(c, "rwkv7,rwkv6:gate_rank=3");
       SetRmsSwiglu(c);
     }},
};

class ModelTest
    : public ::testing::TestWithParam<std::tuple<std::string, ConfigVariant>> {
 protected:
  void SetUp() override {
    ForceSimdTarget(std::get<0>(GetParam()));
    config_ = SmallConfig();
    std::get<1>(GetParam()).change(config_);
    FinishConfig(config_);
    tensors_ = RandomTensors(config_, 1);
    WriteModel(folder_.path(), config_, tensors_);
  }
  void TearDown() override { ResetSimdTarget(); }

  void ExpectNear(const ReferenceModel::Rows& want,
                  const std::vector<float>& got) const {
    for (size_t t = 0; t < want.size(); ++t) {
      for (size_t v = 0; v < want[t].size(); ++v) {
        // Some fifty roundings of 2^-24 between token and logit.
        ASSERT_NEAR(want[t][v], got[t * want[t].size() + v],
                    2e-5 * (1 + std::fabs(want[t][v])))
            << "token " << t << " logit " << v;
      }
    }
  }

  TemporaryFolder folder_;
  ModelConfig config_;
  Tensors tensors_;
};

TEST_P(ModelTest, ScoreAndStepsMatchTheReference) {
  const Model model = Model::Open(folder_.path()).Take();
  EXPECT_EQ(config_, model.config());
  const auto tokens = RandomTokens(config_, 23, 2);
  const auto want = ReferenceModel(config_, tensors_).Logits(tokens);
  const size_t vocab = static_cast<size_t>(config_.vocab_size);
  std::vector<float> scored(tokens.size() * vocab, NAN);
  State state(model);
  model.Score(state, tokens, scored.data());
  ExpectNear(want, scored);

  std::vector<float> stepped(scored.size(), NAN);
  State steps(model);
  for (size_t t = 0; t < tokens.size(); ++t) {
    model.Step(steps, tokens[t], stepped.data() + t * vocab);
  }
  EXPECT_EQ(0, std::memcmp(scored.data(), stepped.data(),
                           scored.size() * sizeof(float)));
  EXPECT_TRUE(state == steps);
  EXPECT_EQ(23, steps.position());
}

TEST_P(ModelTest, BF16WeightsAreTheRoundedModel) {
  // The file's matrices, rounded by hand; what no product reads stays.
  const auto is_kept = [](const std::string& name) {
    for (const char* kept : {"pos_embedding.weight", "convolution.weight",
                             "token_shift", "bonus", "A_log", "bound_logits"}) {
      if (name.ends_with(kept)) return true;
    }
    return false;
  };
  Tensors rounded = tensors_;
  for (const auto& [name, shape] : WeightShapes(config_)) {
    if (shape.size() < 2 || is_kept(name)) continue;
    for (float& x : rounded[name]) {
      uint32_t bits;
      std::memcpy(&bits, &x, 4);
      const uint32_t low = bits & 0xFFFFu;
      const uint32_t up = low > 0x8000u || (low == 0x8000u && (bits >> 16) % 2);
      bits = (bits & 0xFFFF0000u) + (up ? 0x10000u : 0u);
      std::memcpy(&x, &bits, 4);
    }
  }
  const Model model =
      Model::Open(folder_.path(), {.weights = WeightType::kBF16}).Take();
  const auto tokens = RandomTokens(config_, 12, 3);
  std::vector<float> logits(tokens.size() *
                            static_cast<size_t>(config_.vocab_size));
  State state(model);
  model.Score(state, tokens, logits.data());
  ExpectNear(ReferenceModel(config_, rounded).Logits(tokens), logits);
}

// The scalar target and the best one; the kernels' own tests run them all.
std::vector<std::string> TwoTargets() {
  const std::vector<std::string> all = SimdTargets();
  return all.size() == 1 ? all : std::vector{all.front(), all.back()};
}

INSTANTIATE_TEST_SUITE_P(Variants, ModelTest,
                         ::testing::Combine(::testing::ValuesIn(TwoTargets()),
                                            ::testing::ValuesIn(kVariants)),
                         [](const auto& info) {
                           return std::get<0>(info.param) +
                                  std::get<1>(info.param).name;
                         });

TEST(ModelFacts, CountsParametersAndBytes) {
  const TemporaryFolder folder;
  const ModelConfig config = SmallConfig();
  const Tensors tensors = RandomTensors(config, 1);
  WriteModel(folder.path(), config, tensors);
  int64_t parameters = 0;
  for (const auto& [name, values] : tensors) {
    parameters += static_cast<int64_t>(values.size());
  }
  const Model model = Model::Open(folder.path(), {.threads = 2}).Take();
  EXPECT_EQ(parameters, model.parameters());
  EXPECT_EQ(2, model.threads());
  EXPECT_EQ(29, model.vocab_size());
  EXPECT_EQ(2 * 3 * (6 * 5 + 6) * 4, model.state_bytes());
  EXPECT_EQ(0, model.state_bytes_per_token());
  EXPECT_EQ(model.state_bytes(), State(model).bytes());
  EXPECT_GE(model.weight_bytes(), parameters * 4);
  const Model half =
      Model::Open(folder.path(), {.weights = WeightType::kBF16}).Take();
  EXPECT_LT(half.weight_bytes(), model.weight_bytes());
}

TEST(ModelFacts, Poly2StatesAreAsWideAsTheirFeatures) {
  const TemporaryFolder folder;
  ModelConfig config = SmallConfig();
  SetKey(config, "feature_map", FeatureMap::kPoly2);
  SetKey(config, "denominator", Denominator::kSigned);
  WriteModel(folder.path(), config, RandomTensors(config, 1));
  const Model model = Model::Open(folder.path()).Take();
  const int64_t features = 1 + 6 + 6 * 7 / 2;
  EXPECT_EQ(2 * 3 * (features * 5 + features + 1) * 4, model.state_bytes());
  EXPECT_EQ(model.state_bytes(), State(model).bytes());
}

TEST(ModelFacts, SoftmaxStateGrowsByDoubling) {
  const TemporaryFolder folder;
  ModelConfig config = SmallConfig();
  config.attention = MixerKind("full");
  config.max_positions = 1000;
  WriteModel(folder.path(), config, RandomTensors(config, 1));
  const Model model = Model::Open(folder.path()).Take();
  EXPECT_EQ(0, model.state_bytes());
  EXPECT_EQ(2 * 3 * (6 + 5) * 4, model.state_bytes_per_token());
  State state(model);
  int growths = 0;
  int64_t before = state.bytes();
  for (const int32_t token : RandomTokens(config, 1000, 2)) {
    model.Step(state, token);
    EXPECT_GE(state.bytes(), state.position() * model.state_bytes_per_token());
    if (state.bytes() == before) continue;
    ++growths;
    before = state.bytes();
  }
  EXPECT_LE(growths, 5);  // 64, 128, 256, 512, 1024
  EXPECT_LE(state.bytes(), 1024 * model.state_bytes_per_token());
}

TEST(ModelFacts, NaNWeightsGiveNaNLogits) {
  for (const AttentionKind kind : {MixerKind("linear"), MixerKind("full")}) {
    const TemporaryFolder folder;
    ModelConfig config = SmallConfig();
    config.attention = kind;
    Tensors tensors = RandomTensors(config, 1);
    tensors["layers.0.attention.key_projection.weight"][7] =
        std::numeric_limits<float>::quiet_NaN();
    WriteModel(folder.path(), config, tensors);
    const Model model = Model::Open(folder.path()).Take();
    State state(model);
    std::vector<float> logits(29);
    model.Prefill(state, RandomTokens(config, 5, 1), logits.data());
    for (float x : logits) EXPECT_TRUE(std::isnan(x));
  }
}

}  // namespace
}  // namespace tarn::testing
