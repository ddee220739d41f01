// Names and shapes of a model's tensors.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "config/test_util.h"
#include "core/feature_map.h"
#include "core/test_util.h"

namespace tarn {
namespace {

using Shapes = std::vector<std::pair<std::string, std::vector<int64_t>>>;

TEST(WeightShapesTest, ListsTheTensorsInModelOrder) {
  ModelConfig config;
  config.vocab_size = 11;
  config.d_model = 6;
  config.n_layers = 2;
  config.n_heads = 2;
  config.d_key = 5;
  config.d_value = 4;
  config.d_ff = 7;
  config.max_positions = 9;
  Shapes want = {{"value_embedding.weight", {11, 6}},
                 {"pos_embedding.weight", {9, 6}}};
  for (const std::string layer : {"layers.0.", "layers.1."}) {
    want.push_back({layer + "attention.query_projection.weight", {10, 6}});
    want.push_back({layer + "attention.query_projection.bias", {10}});
    want.push_back({layer + "attention.key_projection.weight", {10, 6}});
    want.push_back({layer + "attention.key_projection.bias", {10}});
    want.push_back({layer + "attention.value_projection.weight", {8, 6}});
    want.push_back({layer + "attention.value_projection.bias", {8}});
    want.push_back({layer + "attention.out_projection.weight", {6, 8}});
    want.push_back({layer + "attention.out_projection.bias", {6}});
    want.push_back({layer + "linear1.weight", {7, 6}});
    want.push_back({layer + "linear1.bias", {7}});
    want.push_back({layer + "linear2.weight", {6, 7}});
    want.push_back({layer + "linear2.bias", {6}});
    want.push_back({layer + "norm1.weight", {6}});
    want.push_back({layer + "norm1.bias", {6}});
    want.push_back({layer + "norm2.weight", {6}});
    want.push_back({layer + "norm2.bias", {6}});
  }
  want.push_back({"norm.weight", {6}});
  want.push_back({"norm.bias", {6}});
  want.push_back({"predictor.weight", {11, 6}});
  want.push_back({"predictor.bias", {11}});
  EXPECT_EQ(WeightShapes(config), want);
}

TEST(WeightShapesTest, OptionsAddAndRemoveTensors) {
  ModelConfig config;
  config.positions = Positions::kSinusoidal;
  config.position_combine = PositionCombine::kConcat;
  config.final_norm = false;
  Shapes shapes = WeightShapes(config);
  EXPECT_EQ(shapes[0].second, (std::vector<int64_t>{256, 64}));
  EXPECT_EQ(shapes[1].first, "layers.0.attention.query_projection.weight");
  EXPECT_EQ(shapes.end()[-2].first, "predictor.weight");
  EXPECT_EQ(shapes.end()[-3].first, "layers.3.norm2.bias");

  ModelConfig mixing;
  mixing.feed_forward = FeedForwardOf("channel-mix");
  shapes = WeightShapes(mixing);
  EXPECT_EQ(shapes.end()[-11].first, "layers.3.token_shift");
  EXPECT_EQ(shapes.end()[-11].second, (std::vector<int64_t>{128}));
  EXPECT_EQ(shapes.end()[-9].first, "layers.3.linear2.weight");

  ModelConfig parts;
  parts.layers = LayersFromText("linear:feed_forward=none,linear");
  shapes = WeightShapes(parts);
  const auto has = [&](const std::string& name) {
    return std::any_of(shapes.begin(), shapes.end(),
                       [&](const auto& shape) { return shape.first == name; });
  };
  for (const char* layer : {"0", "2"}) {
    EXPECT_FALSE(has(StrCat("layers.", layer, ".linear1.weight")));
    EXPECT_FALSE(has(StrCat("layers.", layer, ".norm2.weight")));
    EXPECT_TRUE(has(StrCat("layers.", layer, ".norm1.weight")));
  }
  EXPECT_TRUE(has("layers.1.linear1.weight") && has("layers.3.norm2.weight"));

  ModelConfig tied;
  tied.tied_head = true;
  shapes = WeightShapes(tied);
  EXPECT_EQ(shapes.end()[-1].first, "predictor.bias");
  EXPECT_EQ(shapes.end()[-2].first, "norm.bias");
}

// Tensors of everything but embeddings and projections, in their order.
std::vector<std::string> NamesOf(const Shapes& shapes) {
  std::vector<std::string> names;
  for (const auto& [name, shape] : shapes) {
    if (!Contains(name, "_projection.") && !name.ends_with(".bias")) {
      names.push_back(name);
    }
  }
  return names;
}

TEST(WeightShapesTest, NormsOfParts) {
  ModelConfig config;
  config.n_layers = 2;
  SetConfigField(config, "layers", "linear,linear:feed_forward=none");
  const auto norms = [&](Norm norm) {
    config.norm = norm;
    std::string names;
    for (const auto& [name, shape] : WeightShapes(config)) {
      if (name.ends_with(".weight") && name.find("norm") != name.npos) {
        names += name.substr(0, name.size() - 7) + " ";
      }
    }
    return names;
  };
  const std::string once = "layers.0.norm1 layers.0.norm2 layers.1.norm1 norm ";
  EXPECT_EQ(once, norms(Norm::kPre));
  EXPECT_EQ(once, norms(Norm::kPost));
  EXPECT_EQ(once, norms(Norm::kAfter));
  EXPECT_EQ(
      "layers.0.norm1 layers.0.norm2 layers.0.norm1_after layers.0.norm2_after "
      "layers.1.norm1 layers.1.norm1_after norm ",
      norms(Norm::kBoth));
  EXPECT_EQ("norm ", norms(Norm::kNone));
}

TEST(WeightShapesTest, SequenceToSequence) {
  ModelConfig config;
  config.arch = Arch::kSeq2seq;
  config.n_layers = 1;
  SetKey(config, "feature_map", FeatureMap::kFavor);
  SetKey(config, "n_dims", 10);
  const std::string omega = "inner_attention.feature_map.omega";
  EXPECT_EQ(
      NamesOf(WeightShapes(config)),
      (std::vector<std::string>{
          "value_embedding.weight", "target_embedding.weight",
          "pos_embedding.weight", "target_pos_embedding.weight",
          "encoder.layers.0.attention." + omega,
          "encoder.layers.0.linear1.weight", "encoder.layers.0.linear2.weight",
          "encoder.layers.0.norm1.weight", "encoder.layers.0.norm2.weight",
          "encoder.norm.weight", "decoder.layers.0.self_attention." + omega,
          "decoder.layers.0.cross_attention." + omega,
          "decoder.layers.0.linear1.weight", "decoder.layers.0.linear2.weight",
          "decoder.layers.0.norm1.weight", "decoder.layers.0.norm2.weight",
          "decoder.layers.0.norm3.weight", "decoder.norm.weight",
          "predictor.weight"}));
  for (const auto& [name, shape] : WeightShapes(config)) {
    EXPECT_EQ(IsBuffer(name), name.ends_with("omega"));
    if (IsBuffer(name)) {
      EXPECT_EQ(shape, (std::vector<int64_t>{32, 5}));
    }
  }
}

TEST(WeightShapesTest, EarlierModels) {
  ModelConfig config;
  config.arch = Arch::kLstm;
  config.task = Task::kClassify;
  config.n_classes = 3;
  config.n_layers = 1;
  config.d_model = 6;
  config.bidirectional = true;
  const Shapes lstm = {{"value_embedding.weight", {256, 6}},
                       {"rnn.weight_ih_l0", {12, 6}},
                       {"rnn.weight_hh_l0", {12, 3}},
                       {"rnn.bias_ih_l0", {12}},
                       {"rnn.bias_hh_l0", {12}},
                       {"rnn.weight_ih_l0_reverse", {12, 6}},
                       {"rnn.weight_hh_l0_reverse", {12, 3}},
                       {"rnn.bias_ih_l0_reverse", {12}},
                       {"rnn.bias_hh_l0_reverse", {12}},
                       {"predictor.weight", {3, 6}},
                       {"predictor.bias", {3}}};
  EXPECT_EQ(WeightShapes(config), lstm);
  config.bidirectional = false;
  config.arch = Arch::kCnn;
  const Shapes cnn = {{"value_embedding.weight", {256, 6}},
                      {"layers.0.conv.weight", {6, 6, 3}},
                      {"layers.0.conv.bias", {6}},
                      {"layers.0.norm.weight", {6}},
                      {"layers.0.norm.bias", {6}},
                      {"predictor.weight", {3, 6}},
                      {"predictor.bias", {3}}};
  EXPECT_EQ(WeightShapes(config), cnn);
}

TEST(WeightShapesTest, FramesHaveNoTokenEmbedding) {
  const Words sizes = {{"d_model", "6"},
                       {"n_heads", "2"},
                       {"n_layers", "2"},
                       {"positions", "sinusoidal"},
                       {"position_combine", "concat"}};
  Shapes shapes = WeightShapes(With(kCtcWords, sizes));
  EXPECT_EQ(shapes[0],
            (Shapes::value_type{"input_projection.weight", {3, 40}}));
  EXPECT_EQ(shapes[1], (Shapes::value_type{"input_projection.bias", {3}}));
  EXPECT_EQ(shapes[2].first, "layers.0.attention.query_projection.weight");
  EXPECT_EQ(shapes.back(), (Shapes::value_type{"predictor.bias", {11}}));

  ModelConfig lstm = With(kCtcWords, {{"arch", "lstm"},
                                      {"d_model", "6"},
                                      {"n_layers", "2"},
                                      {"bidirectional", "true"}});
  shapes = WeightShapes(lstm);
  EXPECT_EQ(shapes.size(), 2 * 2 * 4 + 2u);
  EXPECT_EQ(shapes[0], (Shapes::value_type{"rnn.weight_ih_l0", {12, 40}}));
  EXPECT_EQ(shapes[4],
            (Shapes::value_type{"rnn.weight_ih_l0_reverse", {12, 40}}));
  EXPECT_EQ(shapes[8], (Shapes::value_type{"rnn.weight_ih_l1", {12, 6}}));
}

TEST(WeightShapesTest, ImagesHaveAHeadOfMixtures) {
  const Shapes shapes = WeightShapes(With(kImageWords));
  EXPECT_EQ(shapes[0],
            (Shapes::value_type{"value_embedding.weight", {256, 128}}));
  EXPECT_EQ(shapes.end()[-2],
            (Shapes::value_type{"predictor.weight", {30, 128}}));
}

TEST(WeightShapesTest, KindsWithTensorsOfTheirOwn) {
  ModelConfig config;
  config.n_layers = 1;
  config.attention = MixerKind("aft-full");
  SetKey(config, "max_sequence_length", 9);
  SetKey(config, "aft_parameterization", 4);
  Shapes shapes = WeightShapes(config);
  const std::string inner = "layers.0.attention.inner_attention.";
  const std::vector<int64_t> table = {9, 4};
  EXPECT_EQ(shapes[10], (Shapes::value_type{inner + "u", table}));
  EXPECT_EQ(shapes[11], (Shapes::value_type{inner + "v", table}));
  config.attention = MixerKind("conditional-full");
  SetKey(config, "feature_map", FeatureMap::kGrf);
  shapes = WeightShapes(config);
  EXPECT_EQ(shapes[10].first, inner + "other_attention.feature_map.omega");
}

// 12 D^2 + 13 D a layer with F = 4 D and 2 D for the final norm.
TEST(WeightShapesTest, ParameterCountOfALayer) {
  ModelConfig config;
  config.d_model = 256;
  config.n_layers = 8;
  config.positions = Positions::kNone;
  const int64_t ends = 2 * 256 * 256 + 256;  // embedding, head
  EXPECT_EQ(ParameterCount(config) - ends, 6318592);
}

TEST(WeightShapesTest, ParameterCountIsTheirSum) {
  std::vector<ModelConfig> configs;
  for (const char* arch :
       {"decoder", "encoder", "seq2seq", "rnn", "lstm", "cnn"}) {
    for (const char* positions : {"none", "learned", "rotary", "sinusoidal"}) {
      for (const char* map : {"elu1", "grf"}) {
        for (const char* tied : {"true", "false"}) {
          ModelConfig config;
          Set(config, "arch", arch);
          Set(config, "positions", positions);
          Set(config, "feature_map", map);
          Set(config, "tied_head", tied);
          if (config.arch == Arch::kEncoder) {
            config.n_classes = 2;
            config.tied_head = false;
          }
          configs.push_back(config);
        }
      }
    }
  }
  configs.push_back(With(kImageWords));
  configs.push_back(With(kCtcWords));
  configs.push_back(
      With(kCtcWords, {{"arch", "lstm"}, {"bidirectional", "true"}}));
  for (const ModelConfig& config : configs) {
    int64_t total = 0;
    std::set<std::string> names;
    for (const auto& [name, shape] : WeightShapes(config)) {
      int64_t elements = 1;
      for (const int64_t size : shape) elements *= size;
      if (!IsBuffer(name)) total += elements;
      EXPECT_TRUE(names.insert(name).second) << name;
    }
    EXPECT_EQ(ParameterCount(config), total);
  }
}

ModelConfig Layered(const std::string& layers) {
  ModelConfig config;
  config.d_model = 32;
  config.d_key = config.d_value = 8;
  config.positions = Positions::kNone;
  config.layers = LayersFromText(layers);
  SetConfigField(config, "d_shared", "8");
  SetConfigField(config, "shared_gate", "true");
  config.n_layers = static_cast<int64_t>(config.layers.size());
  FinishConfig(config);
  return config;
}

TEST(MtpShapesTest, TheHeadIsLikeTheLastLayerThatKeepsAllTokens) {
  const auto with = [](const std::string& layers) {
    ModelConfig config = Layered(layers);
    config.positions = Positions::kRotary;
    config.norm_kind = NormKind::kRms;
    FinishConfig(config);
    return config;
  };
  for (const char* layers :
       {"gdn,full:key_heads=1,gdn", "full:key_heads=1,gdn:feed_forward=moe",
        "full,full:key_heads=1", "full:key_heads=1,local:local_context=3"}) {
    const ModelConfig config = with(layers);
    const std::map<std::string, std::vector<int64_t>> model = [&] {
      const Shapes all = WeightShapes(config);
      return std::map<std::string, std::vector<int64_t>>(all.begin(),
                                                         all.end());
    }();
    const std::string text = layers;
    const int64_t layer = text.starts_with("full:") ? 0 : 1;
    const Shapes head = MtpShapes(config);
    Shapes want;
    const std::string prefix = StrCat("layers.", layer, ".");
    for (const auto& [name, shape] : WeightShapes(config)) {
      if (!name.starts_with(prefix)) continue;
      want.push_back({"mtp.layers.0." + name.substr(prefix.size()), shape});
    }
    for (const char* norm : {"embedding_norm", "hidden_norm", "norm"}) {
      want.push_back({StrCat("mtp.", norm, ".weight"), {config.d_model}});
    }
    want.push_back(
        {"mtp.projection.weight", {config.d_model, 2 * config.d_model}});
    EXPECT_EQ(want, head) << layers;
  }
  for (const char* layers : {"gdn,mamba2", "local:local_context=3",
                             "mamba2+full,linear", "linear"}) {
    EXPECT_TRUE(MtpShapes(Layered(layers)).empty()) << layers;
  }
  ModelConfig learned = Layered("full");
  learned.positions = Positions::kLearned;
  EXPECT_TRUE(MtpShapes(learned).empty());
}

// Some models have layers that do not rotate, and the last may be one.
TEST(MtpShapesTest, ItsLayerMayBeOneThatDoesNotRotate) {
  ModelConfig config = Layered("full,full:rotate=false");
  config.positions = Positions::kRotary;
  FinishConfig(config);
  const std::optional<ModelConfig> head = MtpConfig(config);
  ASSERT_TRUE(head.has_value());
  EXPECT_EQ(Positions::kNone, head->positions);
}

// The keys of other mixers do not reach the head's layer.
TEST(MtpShapesTest, ItsConfigurationIsThatOfTheLayer) {
  ModelConfig config = Layered("gdn,full:key_heads=1");
  config.positions = Positions::kRotary;
  SetConfigField(config, "conv_width", "3");
  FinishConfig(config);
  const std::optional<ModelConfig> head = MtpConfig(config);
  ASSERT_TRUE(head.has_value());
  EXPECT_EQ(1, head->n_layers);
  const ModelConfig layer = LayerView(config, 1), own = LayerView(*head, 0);
  EXPECT_EQ(layer.attention, own.attention);
  for (const char* key : {"key_heads", "window"}) {
    EXPECT_EQ(KeyOf<int64_t>(layer, key), KeyOf<int64_t>(own, key)) << key;
  }
  EXPECT_EQ(Spec(layer.attention).weights(layer),
            Spec(own.attention).weights(own));
}

// A name that no layer has would leave a gate to be rounded.
TEST(WeightPrecisionsTest, AreThoseOfTensorsThatLayersHave) {
  std::set<std::string> named, known;
  const auto add = [](std::set<std::string>& names, const auto& list) {
    for (const auto& [name, value] : list) names.insert(name);
  };
  for (const char* layer :
       {"retnet", "mamba2", "gla", "hgrn2", "deltanet", "gdn", "kda", "mamba1",
        "rwkv6", "rwkv7:value_residual=true", "mlstm", "rg-lru",
        "gdn:feed_forward=moe"}) {
    // The second layer reads what the first hands on.
    const ModelConfig config = Layered(StrCat(layer, ",", layer));
    for (int64_t i = 0; i < 2; ++i) {
      const ModelConfig view = LayerView(config, i);
      const MixerSpec& mixer = Spec(view.attention);
      const FeedForwardSpec& part = Spec(view.feed_forward);
      add(known, mixer.weights(view));
      add(known, part.weights(view));
      add(named, mixer.precise);
      add(named, part.precise);
    }
  }
  EXPECT_GT(named.size(), 15u);
  for (const std::string& name : named) {
    EXPECT_EQ(known.count(name), 1u) << name;
  }
}

TEST(WeightPrecisionsTest, NameTheTensorsOfLayers) {
  const auto precisions = WeightPrecisions(
      Layered("gdn:feed_forward=moe,mamba2+full,hgrn2,linear,gdn"));
  const auto of = [&](const std::string& name) {
    const auto found = precisions.find(name);
    return found == precisions.end() ? Precision::kGroups : found->second;
  };
  EXPECT_EQ(of("value_embedding.weight"), Precision::kByte);
  EXPECT_EQ(of("predictor.weight"), Precision::kByte);
  EXPECT_EQ(of("layers.0.attention.decay_projection.weight"),
            Precision::kFloat);
  EXPECT_EQ(of("layers.0.attention.beta_projection.weight"), Precision::kFloat);
  EXPECT_EQ(of("layers.0.attention.query_projection.weight"),
            Precision::kGroups);
  EXPECT_EQ(of("layers.0.router.weight"), Precision::kFloat);
  EXPECT_EQ(of("layers.1.attention.branches.0.decay_projection.weight"),
            Precision::kFloat);
  EXPECT_EQ(of("layers.2.attention.decay_projection.weight"), Precision::kByte);
  EXPECT_EQ(of("layers.4.attention.beta_projection.weight"), Precision::kFloat);
  ModelConfig head = Layered("gdn,full:feed_forward=moe");
  head.positions = Positions::kRotary;
  EXPECT_EQ(WeightPrecisions(head).at("mtp.layers.0.router.weight"),
            Precision::kFloat);
  ModelConfig pairs;
  pairs.arch = Arch::kSeq2seq;
  pairs.n_decoder_layers = 2;
  FinishConfig(pairs);
  EXPECT_EQ(WeightPrecisions(pairs).at("target_embedding.weight"),
            Precision::kByte);
}

}  // namespace
}  // namespace tarn
