// Parallel mixers: their texts, what each of them sees, their tensors and
// states under numbers, and sizes of heads by layer.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "config/feed_forward_form.h"
#include "config/test_util.h"
#include "core/test_util.h"

namespace tarn {
namespace {

using Json = nlohmann::json;

ModelConfig Stack(const std::string& layers, Words words = {}) {
  words["layers"] = layers;
  return Finished(With(words));
}

std::vector<std::string> NamesOf(const StateSpec& state) {
  std::vector<std::string> names;
  for (const StateTensor& tensor : state) names.emplace_back(tensor.name);
  return names;
}

TEST(ParallelMixer, TextAndFilesGoThereAndBack) {
  for (const char* text :
       {"mamba2+full,linear", "full+full", "gla+linear+full,full",
        "mamba2+full:window=4", "mamba2:key_heads=2+full:key_heads=1,full",
        "mamba2:branch_factor=0.5+full:branch_factor=-1.25",
        "mamba2+full:softcap=1e+06:feed_forward=none,full",
        "mamba2:n_heads=8:d_value=16+full:d_key=64:feed_forward=swiglu:d_ff=9"
        ",full"}) {
    const ModelConfig config = Stack(text);
    if (!config.layers.empty()) {
      const ModelConfig again = Stack(LayersText(config));
      EXPECT_EQ(again, config) << LayersText(config);
    }
    EXPECT_EQ(ConfigFromJson(ConfigToJson(config)).Take(), config) << text;
    EXPECT_EQ(ConfigFromPartialJson(ConfigToFlatJson(config)).Take(), config);
    EXPECT_EQ(Finished(config), config) << text;
  }
  EXPECT_EQ(LayersText(Stack("full:window=4+full:feed_forward=none,full")),
            "full:window=4+full:feed_forward=none,full");
}

TEST(ParallelMixer, FilesNameTheMixersInAList) {
  const Json file = Json::parse(
      ConfigToJson(Stack("mamba2:conv_width=0+full:window=4,linear")));
  EXPECT_EQ(file["layers"],
            Json::parse(R"([{"mixer": [{"mixer": "mamba2", "conv_width": 0},
                                       {"mixer": "full", "window": 4}]},
                            "linear"])"));
  EXPECT_TRUE(file.contains("linear") && file.contains("softmax"));
  EXPECT_EQ(Json::parse(ConfigToJson(Stack("mamba2+full")))["layers"],
            Json::parse(R"(["mamba2+full"])"));
  const ModelConfig alike = Stack("mamba2+full,mamba2+full");
  EXPECT_TRUE(alike.layers.empty());
  EXPECT_EQ(alike, Finished(With({{"attention", "mamba2+full"}})));
}

TEST(ParallelMixer, EachSeesItsOwnKeys) {
  const ModelConfig config =
      Stack("mamba2:n_heads=8:d_value=16+full:key_heads=2:window=4,full",
            {{"n_heads", "4"}, {"d_model", "64"}});
  const ModelConfig layer = LayerView(config, 2);
  ASSERT_EQ(layer.branches.size(), 2u);
  EXPECT_EQ(layer.branches[0].attention, MixerKind("mamba2"));
  EXPECT_EQ(layer.branches[0].n_heads, 8);
  EXPECT_EQ(layer.branches[0].d_value, 16);
  EXPECT_EQ(layer.branches[1].n_heads, 4);
  EXPECT_EQ(layer.branches[1].d_value, 16);
  EXPECT_EQ(KeyOf<int64_t>(layer.branches[1], "window"), 4);
  EXPECT_EQ(KeyOf<int64_t>(layer.branches[0], "key_heads"), 0);
  EXPECT_EQ(KeyOf<int64_t>(LayerView(config, 1), "window"), 0);
  EXPECT_EQ(MixersOf(config),
            (std::vector{MixerKind("mamba2"), MixerKind("full")}));
  EXPECT_EQ(MixerViews(layer), layer.branches);
  const ModelConfig plain = LayerView(config, 1);
  EXPECT_EQ(MixerViews(plain), std::vector{plain});
}

TEST(ParallelMixer, TensorsAndStatesAreThoseOfItsMixers) {
  const ModelConfig config =
      Stack("mamba2+full:feed_forward=channel-mix,full", {{"n_layers", "2"}});
  const ModelConfig layer = LayerView(config, 0);
  std::vector<NamedShape> wanted;
  for (size_t i = 0; i < 2; ++i) {
    const ModelConfig& view = layer.branches[i];
    for (const auto& [name, shape] : Spec(view.attention).weights(view)) {
      wanted.push_back({StrCat("branches.", i, ".", name), shape});
    }
  }
  EXPECT_EQ(Spec(layer.attention).weights(layer), wanted);
  const StateSpec state = LayerState(layer);
  EXPECT_EQ(NamesOf(state),
            (std::vector<std::string>{"0.S", "0.window", "1.keys", "1.values",
                                      state.back().name}));
  EXPECT_TRUE(state[2].grows);
  EXPECT_EQ(FeedForwardState(layer).size(), 1u);
  int64_t trained = 0;
  for (const auto& [name, shape] : WeightShapes(config)) {
    trained += IsBuffer(name) ? 0 : TrainedNumbers({{name, shape}});
  }
  EXPECT_EQ(ParameterCount(config), trained);
  EXPECT_TRUE(Spec(MixerKind("mamba2+full")).can.recurrent);
  EXPECT_FALSE(Spec(MixerKind("mamba2+full")).can.bidirectional);
  EXPECT_TRUE(Spec(MixerKind("linear+full")).can.bidirectional);
  EXPECT_FALSE(Spec(MixerKind("linear+reformer")).can.recurrent);
}

TEST(ParallelMixer, IsInNoListOfMixers) {
  const AttentionKind kind = MixerKind("gla+full");
  EXPECT_EQ(kind, MixerKind("gla+full"));
  EXPECT_STREQ(Name(kind), "gla+full");
  for (const char* name : MixerNames()) {
    EXPECT_EQ(std::string(name).find('+'), std::string::npos);
    EXPECT_STREQ(Name(MixerKind(name)), name);
  }
}

TEST(ParallelMixer, SizesOfHeadsBelongToALayer) {
  const ModelConfig config =
      Stack("linear:n_heads=2:d_key=32,full:d_value=8:d_ff=100",
            {{"d_model", "64"}, {"n_heads", "4"}, {"n_layers", "2"}});
  EXPECT_EQ(LayerView(config, 0).n_heads, 2);
  EXPECT_EQ(LayerView(config, 0).d_key, 32);
  EXPECT_EQ(LayerView(config, 1).n_heads, 4);
  EXPECT_EQ(LayerView(config, 1).d_key, 16);
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const auto& [name, shape] : WeightShapes(config)) shapes[name] = shape;
  using Sizes = std::vector<int64_t>;
  EXPECT_EQ(shapes.at("layers.0.attention.key_projection.weight"),
            (Sizes{64, 64}));
  EXPECT_EQ(shapes.at("layers.1.attention.value_projection.weight"),
            (Sizes{32, 64}));
  EXPECT_EQ(shapes.at("layers.1.linear1.weight"), (Sizes{100, 64}));
  EXPECT_EQ(shapes.at("layers.0.linear1.weight"), (Sizes{256, 64}));
}

TEST(ParallelMixer, RefusesWhatMakesNoLayer) {
  const auto error = [](const std::string& layers, Words words = {}) {
    return ErrorOf([&] { (void)Stack(layers, words); });
  };
  for (const char* text :
       {"mamba2+", "+full", "mamba2+nothing", "full+full+full+full",
        "mamba2+full:window=4:window=5", "mamba2:window=4+full",
        "mamba2:branch_factor=none+full", "full:branch_factor=2,linear",
        "full:d_key=0,linear", "full:n_heads=0,linear"}) {
    EXPECT_EQ(error(text).where(), "layers") << text;
  }
  EXPECT_EQ(
      error("mamba2+full", {{"arch", "encoder"}, {"n_classes", "2"}}).where(),
      "attention");
  EXPECT_EQ(error("linear+aft-full", {{"positions", "rotary"}}).where(),
            "positions");
  EXPECT_EQ(error("linear+local").where(), "local_context");
  for (const char* odd : {"linear:d_key=7,linear", "mamba2+full:d_key=7"}) {
    EXPECT_EQ(error(odd, {{"positions", "rotary"}}).where(), "d_key") << odd;
  }
  EXPECT_EQ(error("gdn:d_key=7,linear", {{"d_key", "8"}}).code(),
            ErrorCode::kOk);
  const auto read = [](const char* layers) {
    const auto config =
        ConfigFromPartialJson(StrCat(R"({"layers": )", layers, "}"));
    return config.ok() ? std::string() : std::string(config.error().what());
  };
  EXPECT_EQ(read(R"([{"mixer": ["mamba2", "full"], "feed_forward": "none"}])"),
            "");
  for (const char* layers :
       {R"([["mamba2", "full"]])", R"([{"mixer": ["mamba2"]}])",
        R"([{"mixer": ["mamba2", 3]}])", R"([{"mixer": []}])",
        R"([{"mixer": ["mamba2", "full+full"]}])",
        R"([{"mixer": ["mamba2", {"mixer": ["full", "full"]}]}])",
        R"([{"mixer": ["mamba2", {"mixer": "full", "feed_forward": "mlp"}]}])",
        R"([{"mixer": ["full", "full", "full", "full"]}])"}) {
    EXPECT_TRUE(Contains(read(layers), "layers")) << layers << read(layers);
  }
  MixerSpec named = Spec(MixerKind("full"));
  named.name = "a+b";
  EXPECT_EQ(ErrorOf([&] { (void)RegisterMixer(named); }).where(),
            "RegisterMixer: spec.name");
}

}  // namespace
}  // namespace tarn
