// The pattern of layers: its texts, its normal form, what one layer sees.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "config/test_util.h"
#include "core/feature_map.h"
#include "core/test_util.h"

namespace tarn {
namespace {

using Json = nlohmann::json;

ModelConfig Hybrid(const std::string& layers, Words words = {}) {
  words["layers"] = layers;
  ModelConfig config = With(words);
  FinishConfig(config);
  return config;
}

TEST(Layers, TextGoesThereAndBack) {
  for (const char* text :
       {"linear,full", "linear,linear,full", "local:local_context=3,linear",
        "linear:feature_map=relu,linear",
        "full,linear:feature_map=relu2:denominator=none",
        "linear,full:norm=after"}) {
    const ModelConfig config = Hybrid(text);
    EXPECT_EQ(LayersText(config), text);
    EXPECT_EQ(ConfigFromJson(ConfigToJson(config)).Take(), config) << text;
    EXPECT_EQ(ConfigFromPartialJson(ConfigToFlatJson(config)).Take(), config);
  }
}

TEST(Layers, AlikeIsNoPattern) {
  EXPECT_EQ(Hybrid("full,full"), Hybrid("full"));
  EXPECT_TRUE(Hybrid("full").layers.empty());
  EXPECT_EQ(Hybrid("full").attention, MixerKind("full"));
  // Options that all layers share become the model's own; one equal to the
  // model's value is dropped.
  const ModelConfig local = Hybrid("local:local_context=5");
  EXPECT_TRUE(local.layers.empty());
  EXPECT_EQ(KeyOf<int64_t>(local, "local_context"), 5);
  EXPECT_EQ(LayersText(Hybrid("linear:feature_map=elu1,full")), "linear,full");
  EXPECT_EQ(LayersText(Hybrid("linear:denominator=none:feature_map=relu,full")),
            "linear:feature_map=relu:denominator=none,full");
}

TEST(Layers, ALayerSeesItsOwnOptions) {
  const ModelConfig config =
      Hybrid("linear,local:local_context=3,linear:feature_map=rff",
             {{"n_layers", "7"}});
  EXPECT_EQ(config.attention, MixerKind("linear"));
  EXPECT_EQ(MixersOf(config),
            (std::vector{MixerKind("linear"), MixerKind("local")}));
  EXPECT_EQ(KeyOf<FeatureMap>(LayerView(config, 0), "feature_map"),
            FeatureMap::kElu1);
  EXPECT_EQ(LayerView(config, 1).attention, MixerKind("local"));
  EXPECT_EQ(KeyOf<int64_t>(LayerView(config, 4), "local_context"), 3);
  const ModelConfig third = LayerView(config, 5);
  EXPECT_EQ(KeyOf<FeatureMap>(third, "feature_map"), FeatureMap::kRff);
  EXPECT_EQ(KeyOf<int64_t>(third, "n_dims"), 32);  // derived for this layer
  EXPECT_EQ(KeyOf<Denominator>(third, "denominator"), Denominator::kSigned);
  EXPECT_TRUE(third.layers.empty());
  const ModelConfig plain = Hybrid("full");
  EXPECT_EQ(LayerView(plain, 3), plain);
}

TEST(Layers, WeightsFollowThePattern) {
  const ModelConfig config = Hybrid(
      "linear:feature_map=favor,aft-full,full",
      {{"norm_kind", "rms"}, {"feed_forward", "swiglu"}, {"n_layers", "4"}});
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const auto& [name, shape] : WeightShapes(config)) shapes[name] = shape;
  EXPECT_TRUE(
      shapes.contains("layers.0.attention.inner_attention.feature_map.omega"));
  EXPECT_TRUE(
      shapes.contains("layers.3.attention.inner_attention.feature_map.omega"));
  EXPECT_TRUE(shapes.contains("layers.1.attention.inner_attention.u"));
  EXPECT_FALSE(shapes.contains("layers.2.attention.inner_attention.u"));
  EXPECT_EQ(shapes.at("layers.2.linear3.weight"),
            (std::vector<int64_t>{512, 128}));
  EXPECT_FALSE(shapes.contains("layers.2.linear1.bias"));
  EXPECT_FALSE(shapes.contains("norm.bias"));
  int64_t trained = 0;
  for (const auto& [name, shape] : shapes) {
    int64_t elements = 1;
    for (const int64_t size : shape) elements *= size;
    if (!IsBuffer(name)) trained += elements;
  }
  EXPECT_EQ(ParameterCount(config), trained);
}

TEST(Layers, NormsHaveAPlaceByLayer) {
  const ModelConfig config =
      Hybrid("full:norm=both,full:norm=none,full", {{"n_layers", "3"}});
  EXPECT_EQ(LayerView(config, 0).norm, Norm::kBoth);
  EXPECT_EQ(LayerView(config, 1).norm, Norm::kNone);
  EXPECT_EQ(LayerView(config, 2).norm, Norm::kPre);
  EXPECT_FALSE(config.HasPlainSums());
  EXPECT_TRUE(LayerView(config, 2).HasPlainSums());
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const auto& [name, shape] : WeightShapes(config)) shapes[name] = shape;
  EXPECT_TRUE(shapes.contains("layers.0.norm2_after.weight"));
  EXPECT_FALSE(shapes.contains("layers.1.norm1.weight"));
  EXPECT_TRUE(shapes.contains("layers.2.norm2.weight"));
  EXPECT_FALSE(shapes.contains("layers.2.norm2_after.weight"));
  int64_t trained = 0;
  for (const auto& shape : shapes) trained += TrainedNumbers({shape});
  EXPECT_EQ(ParameterCount(config), trained);
  EXPECT_EQ(Hybrid("full:norm=post"), Hybrid("full", {{"norm", "post"}}));
  EXPECT_EQ(ErrorOf([] { (void)Hybrid("full:norm=inside,full"); }).where(),
            "layers");
}

TEST(Layers, PartsReadTheSameRowsWhereTheyCan) {
  const auto refused = [](const char* layers, Norm norm, Arch arch) {
    ModelConfig config;
    config.parallel_residual = true;
    config.layers = LayersFromText(layers);
    config.norm = norm;
    config.arch = arch;
    try {
      FinishConfig(config);
    } catch (const ArgumentError& error) {
      return error.where();
    }
    EXPECT_FALSE(config.HasPlainSums());
    EXPECT_TRUE(ConfigFromJson(ConfigToJson(config)).Take().parallel_residual);
    return std::string();
  };
  const std::string key = "parallel_residual";
  EXPECT_EQ(refused("full", Norm::kPre, Arch::kDecoder), "");
  EXPECT_EQ(refused("full,linear", Norm::kBoth, Arch::kDecoder), "");
  EXPECT_EQ(refused("full", Norm::kPost, Arch::kDecoder), key);
  EXPECT_EQ(refused("full,full:norm=post", Norm::kPre, Arch::kDecoder), key);
  EXPECT_EQ(refused("full", Norm::kPre, Arch::kSeq2seq), key);
  EXPECT_EQ(
      refused("full:feed_forward=channel-mix,full", Norm::kPre, Arch::kDecoder),
      key);
}

TEST(Layers, CrossAttentionIsLinearWhereAllLayersAre) {
  const Words seq2seq = {{"arch", "seq2seq"}};
  EXPECT_EQ(Hybrid("linear,linear:feature_map=relu", seq2seq).cross_attention,
            MixerKind("linear"));
  EXPECT_EQ(Hybrid("linear,full", seq2seq).cross_attention, MixerKind("full"));
}

TEST(Layers, TheFirstLayerThatPassesRowsOnReadsNone) {
  const Words square = {{"n_layers", "5"}, {"d_value", "32"}, {"d_key", "32"}};
  const ModelConfig config = Hybrid(
      "full,rwkv7:value_residual=true,gla+rwkv7:value_residual=true", square);
  EXPECT_FALSE(LayerView(config, 0).reads_passed);
  EXPECT_FALSE(LayerView(config, 1).reads_passed);
  EXPECT_TRUE(LayerView(config, 2).branches[1].reads_passed);
  EXPECT_FALSE(LayerView(config, 2).branches[0].reads_passed);
  EXPECT_TRUE(LayerView(config, 4).reads_passed);
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const auto& [name, shape] : WeightShapes(config)) shapes[name] = shape;
  const std::string up = "value_up_projection.weight";
  EXPECT_FALSE(shapes.contains("layers.1.attention." + up));
  EXPECT_TRUE(shapes.contains("layers.2.attention.branches.1." + up));
  EXPECT_TRUE(shapes.contains("layers.4.attention." + up));
  EXPECT_EQ(ConfigFromJson(ConfigToJson(config)).Take(), config);
  int64_t trained = 0;
  for (const auto& shape : shapes) trained += TrainedNumbers({shape});
  EXPECT_EQ(ParameterCount(config), trained);
  const ModelConfig alike = Hybrid("rwkv7:value_residual=true", square);
  EXPECT_FALSE(LayerView(alike, 0).reads_passed);
  EXPECT_TRUE(LayerView(alike, 1).reads_passed);
  EXPECT_EQ(ErrorOf([&] {
              (void)Hybrid(
                  "rwkv7:value_residual=true,"
                  "rwkv7:value_residual=true:n_heads=2",
                  square);
            }).where(),
            "layers");
}

TEST(Layers, TheFirstLayerWithLearnedBoundsHoldsThoseOfAll) {
  const Words words = {{"n_layers", "5"}, {"d_key", "32"}, {"d_value", "32"}};
  const ModelConfig config = Hybrid(
      "hgrn2,full+hgrn2:learned_bounds=true,hgrn2:learned_bounds=true", words);
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const auto& [name, shape] : WeightShapes(config)) shapes[name] = shape;
  EXPECT_TRUE(shapes.contains("layers.0.attention.lower_bound"));
  const auto logits = shapes.find("layers.1.attention.branches.1.bound_logits");
  ASSERT_NE(logits, shapes.end());
  EXPECT_EQ(logits->second,
            (std::vector<int64_t>{5, config.n_heads * config.d_key}));
  for (const auto& [name, shape] : shapes) {
    EXPECT_EQ(name.ends_with("bound_logits"), name == logits->first) << name;
    if (!name.ends_with("lower_bound")) continue;
    EXPECT_TRUE(name.starts_with("layers.0.") || name.starts_with("layers.3."))
        << name;
  }
  EXPECT_TRUE(shapes.contains("layers.3.attention.lower_bound"));
  EXPECT_FALSE(IsBuffer(logits->first));
  EXPECT_EQ(ConfigFromJson(ConfigToJson(config)).Take(), config);
  for (const char* layers :
       {"hgrn2:learned_bounds=true,rwkv7:value_residual=true",
        "hgrn2:learned_bounds=true,hgrn2:learned_bounds=true:n_heads=2"}) {
    EXPECT_EQ(ErrorOf([&] { (void)Hybrid(layers, words); }).where(), "layers");
  }
}

TEST(Layers, RefusesWhatMakesNoStack) {
  const auto where = [](const std::string& layers, Words words = {}) {
    return ErrorOf([&] { (void)Hybrid(layers, words); });
  };
  EXPECT_TRUE(Contains(where("linear,softmax").what(), "'softmax'"));
  EXPECT_TRUE(Contains(where("linear,softmax").what(), "aft-simple"));
  EXPECT_EQ(where("").where(), "layers");
  EXPECT_EQ(where("linear,,full").where(), "layers");
  EXPECT_TRUE(Contains(where("linear:topk=3,full").what(), "feature_map"));
  EXPECT_EQ(where("linear:feature_map=no,full").where(), "layers");
  EXPECT_EQ(where("exact-topk:topk=0,full").where(), "layers");
  EXPECT_EQ(where("exact-topk:topk,full").where(), "layers");
  EXPECT_EQ(where("exact-topk:topk=1:topk=2,full").where(), "layers");
  EXPECT_EQ(where("linear,full", {{"n_layers", "1"}}).where(), "layers");
  EXPECT_EQ(where("linear,full", {{"arch", "lstm"}}).where(), "layers");
  EXPECT_EQ(where("linear,clustered").where(), "attention");
  EXPECT_EQ(where("linear,local").where(), "local_context");
  EXPECT_EQ(where("linear,aft-simple", {{"positions", "rotary"}}).where(),
            "positions");
  EXPECT_EQ(where("linear,aft-full", {{"attention_dropout", "0.5"}}).where(),
            "attention_dropout");
}

TEST(Layers, FileHoldsTheSectionsThatItsModelReads) {
  Json json = Json::parse(ConfigToJson(Hybrid("linear,full")));
  EXPECT_TRUE(json.contains("softmax") && json.contains("linear"));
  EXPECT_FALSE(json.contains("sparse"));
  const auto error = [](const Json& file) {
    const auto result = ConfigFromJson(file.dump());
    return result.ok() ? std::string() : std::string(result.error().what());
  };
  EXPECT_EQ(error(json), "");
  for (const auto& [key, value] : json.items()) {
    Json missing = json;
    missing.erase(key);
    EXPECT_NE(error(missing), "") << key;
    if (!value.is_object()) continue;
    for (const auto& [name, member] : value.items()) {
      missing = json;
      missing[key].erase(name);
      EXPECT_TRUE(Contains(error(missing), key + "." + name)) << error(missing);
      missing = json;
      missing[key][name] = nullptr;
      EXPECT_TRUE(Contains(error(missing), key + "." + name));
    }
  }
  Json more = json;
  more["sparse"] = Json::object();
  EXPECT_TRUE(Contains(error(more), "sparse"));
  more = json;
  more["linear"]["topk"] = 3;
  EXPECT_TRUE(Contains(error(more), "'topk'"));
  more = json;
  more["d_model"] = 128;
  EXPECT_TRUE(Contains(error(more), "'d_model'"));
  for (const Json& layers :
       {Json(3), Json::array(), Json::array({3}), Json::array({"no"}),
        Json::array({Json::object()}), Json::array({"linear,full"}),
        Json::array({{{"mixer", "linear"}, {"topk", 3}}}),
        Json::array({{{"mixer", "linear"}, {"feature_map", 3}}})}) {
    more = json;
    more["layers"] = layers;
    EXPECT_TRUE(Contains(error(more), "layers")) << layers << error(more);
  }
}

TEST(Layers, HandWrittenKeysMustAgree) {
  const auto read = [](const char* text) {
    return ConfigFromPartialJson(text);
  };
  EXPECT_EQ(read(R"({"layers": ["linear", "full"]})").Take(),
            Hybrid("linear,full"));
  EXPECT_EQ(read(R"({"layers": ["full"], "attention": "full"})").Take(),
            Hybrid("full"));
  EXPECT_EQ(read(R"({"norm": {"kind": "rms"}, "d_model": 64})").Take(),
            With({{"norm_kind", "rms"},
                  {"d_model", "64"},
                  {"d_key", "16"},
                  {"d_value", "16"},
                  {"d_ff", "256"},
                  {"task", "lm"},
                  {"cross_attention", "linear"}}));
  EXPECT_FALSE(
      read(R"({"layers": ["linear", "full"], "attention": "full"})").ok());
}

}  // namespace
}  // namespace tarn
