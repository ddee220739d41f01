// What layers of softmax attention need, keep and cost, and what they refuse.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "core/error.h"
#include "core/text.h"
#include "mixers/softmax/form.h"

namespace tarn {
namespace {

ModelConfig LayersOf(const std::string& layers,
                     Positions positions = Positions::kNone) {
  ModelConfig config;
  config.d_model = 32;
  config.n_heads = 4;
  config.d_key = 8;
  config.d_value = 6;
  config.n_layers = 2;
  config.positions = positions;
  config.layers = LayersFromText(layers);
  return config;
}

std::string Refused(const std::string& layers,
                    Positions positions = Positions::kNone,
                    Arch arch = Arch::kDecoder) {
  try {
    ModelConfig config = LayersOf(layers, positions);
    config.arch = arch;
    if (arch == Arch::kEncoder) config.n_classes = 2;
    FinishConfig(config);
  } catch (const ArgumentError& error) {
    return error.where();
  }
  return "";
}

std::vector<std::string> Tensors(const std::string& layers,
                                 Positions positions = Positions::kNone) {
  const ModelConfig view = LayerView(Finished(LayersOf(layers, positions)), 0);
  std::vector<std::string> names;
  for (const auto& [name, shape] : Spec(view.attention).weights(view)) {
    std::string text = name;
    for (const int64_t size : shape) text += StrCat(" ", size);
    names.push_back(text);
  }
  return names;
}

TEST(SoftmaxForm, FilesOfPlainLayersHaveNoMoreKeysThanBefore) {
  for (const char* layers : {"full", "local:local_context=3"}) {
    const std::string json = ConfigToJson(LayersOf(layers));
    for (const char* section :
         {"softmax_form", "grouping", "gated_softmax", "rotary_scaling"}) {
      EXPECT_EQ(json.find(section), std::string::npos) << section;
    }
  }
}

TEST(SoftmaxForm, KeysSurviveTheFile) {
  for (const char* layers :
       {"full:key_heads=2", "full:window=7:sinks=true", "full:head_norm=full",
        "full:score_scale=0.5:softcap=2.5", "local:local_context=3:key_heads=1",
        "full:latent_width=5:qkv_bias=false", "full,full:window=3"}) {
    ModelConfig config = LayersOf(layers);
    config = Finished(config);
    const Result<ModelConfig> read = ConfigFromJson(ConfigToJson(config));
    ASSERT_TRUE(read.ok()) << layers << ": " << read.error().what();
    EXPECT_EQ(read.value(), config) << layers;
  }
  // A key of the model, not of one layer.
  ModelConfig config = LayersOf("full");
  SetKey<int64_t>(config, "window", 9);
  config.positions = Positions::kRotary;
  config.rotary_scaling = RotaryScalingKind::kYarn;
  config.rotary_factor = 4;
  config.rotary_original_positions = 64;
  config = Finished(config);
  const std::string json = ConfigToJson(config);
  EXPECT_NE(json.find("\"softmax_form\": {"), std::string::npos);
  EXPECT_NE(json.find("\"rotary_scaling\": {"), std::string::npos);
  EXPECT_EQ(ConfigFromJson(json).Take(), config);
}

// A model's key_heads are those of the mixers that always had them.
TEST(SoftmaxForm, KeysOfOtherMixersDoNotReachFull) {
  const auto heads = [](const char* layers, int64_t layer) {
    ModelConfig config = LayersOf(layers);
    SetKey<int64_t>(config, "key_heads", 2);
    return SoftmaxForm(LayerView(Finished(config), layer)).key_heads;
  };
  EXPECT_EQ(heads("full", 0), 2);
  EXPECT_EQ(heads("full,local:local_context=3", 1), 2);
  EXPECT_EQ(heads("gdn,full", 0), 2);
  EXPECT_EQ(heads("gdn,full", 1), 4);
  EXPECT_EQ(heads("gdn,full:key_heads=2", 1), 2);
  EXPECT_EQ(heads("gdn,full:key_heads=1", 1), 1);
  EXPECT_EQ(heads("gated-full,full", 0), 2);
  EXPECT_EQ(heads("gated-full,full", 1), 4);
}

TEST(SoftmaxForm, RefusesWhatCannotBe) {
  using enum Positions;
  EXPECT_EQ(Refused("full:key_heads=3"), "key_heads");
  EXPECT_EQ(Refused("full:rotary_width=3"), "rotary_width");
  EXPECT_EQ(Refused("full:rotary_width=10", kRotary), "rotary_width");
  EXPECT_EQ(Refused("full:shared_key_width=2"), "latent_width");
  EXPECT_EQ(Refused("full:latent_width=4"), "qkv_bias");
  const std::string latent = "full:latent_width=4:qkv_bias=false";
  EXPECT_EQ(Refused(latent), "");
  EXPECT_EQ(Refused(latent + ":shared_key_width=8"), "shared_key_width");
  EXPECT_EQ(Refused(latent + ":head_norm=head"), "head_norm");
  EXPECT_EQ(Refused(latent + ":head_gate=true"), "head_gate");
  EXPECT_EQ(Refused(latent + ":key_heads=2"), "key_heads");
  EXPECT_EQ(Refused(latent + ":window=2"), "window");
  EXPECT_EQ(Refused(latent, kRotary), "rotary_width");
  EXPECT_EQ(Refused(latent + ":shared_key_width=4", kRotary), "rotary_width");
  EXPECT_EQ(Refused(latent + ":shared_key_width=4:rotary_width=4", kRotary),
            "");
  EXPECT_EQ(Refused(latent, kNone, Arch::kEncoder), "latent_width");
  EXPECT_EQ(Refused("full:window=2", kNone, Arch::kEncoder), "window");
  EXPECT_EQ(Refused("full:key_heads=2", kNone, Arch::kEncoder), "");
  EXPECT_EQ(Refused("full:key_heads=2", kNone, Arch::kSeq2seq), "arch");
  EXPECT_EQ(Refused("local:local_context=3:window=2"), "");  // read by none
}

TEST(SoftmaxForm, LayersRotateAsTheySay) {
  constexpr Positions kRotary = Positions::kRotary;
  const ModelConfig config = Finished(LayersOf(
      "full:rotate=false,full:own_rotary_base=50:rotary_width=4", kRotary));
  EXPECT_EQ(config.rotary_bases, std::vector<double>{50.0});
  EXPECT_EQ(config.RotaryWidth(), 4);  // of the first layer that rotates
  const SoftmaxForm still(LayerView(config, 0)), own(LayerView(config, 1));
  EXPECT_EQ(still.rotary, 0);
  EXPECT_FALSE(still.plain());
  EXPECT_EQ(own.rotary, 4);
  EXPECT_EQ(own.angles(), 4);
  EXPECT_EQ(ConfigFromJson(ConfigToJson(config)).Take(), config);
  // Of the model where all layers have it, and with nothing to rotate, of none.
  EXPECT_EQ(Finished(LayersOf("full:own_rotary_base=50", kRotary)).rotary_bases,
            std::vector<double>{50.0});
  EXPECT_TRUE(
      Finished(LayersOf("full:own_rotary_base=50")).rotary_bases.empty());
  EXPECT_EQ(Refused("full:rotate=false", kRotary), "positions");
  EXPECT_EQ(Refused("full:rotary_width=4,full:rotary_width=2", kRotary),
            "rotary_width");
  EXPECT_EQ(
      Refused("full:rotary_width=4,full:rotary_width=2:rotate=false", kRotary),
      "");
  EXPECT_EQ(Refused("full:own_rotary_base=0.5,full", kRotary),
            "own_rotary_base");
  ModelConfig many;
  many.n_layers = 9;
  many.positions = kRotary;
  for (int i = 0; i < 9; ++i) {
    many.layers.push_back(
        {MixerKind("full"), {{"own_rotary_base", StrCat(i + 2)}}});
  }
  EXPECT_THROW(Finished(many), ArgumentError);
  many.layers.pop_back();
  EXPECT_EQ(Finished(many).rotary_bases.size(), 8u);
}

TEST(SoftmaxForm, NamesItsTensors) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(Tensors("full:key_heads=2:out_bias=false:sinks=true"),
            (Names{"query_projection.weight 32 32", "query_projection.bias 32",
                   "key_projection.weight 16 32", "key_projection.bias 16",
                   "value_projection.weight 12 32", "value_projection.bias 12",
                   "sinks 4", "out_projection.weight 32 24"}));
  EXPECT_EQ(Tensors("full:qkv_bias=false:head_norm=full:key_heads=1"),
            (Names{"query_projection.weight 32 32",
                   "key_projection.weight 8 32", "value_projection.weight 6 32",
                   "query_norm.weight 32", "key_norm.weight 8",
                   "out_projection.weight 32 24", "out_projection.bias 32"}));
  EXPECT_EQ(
      Tensors("full:qkv_bias=false:out_bias=false:latent_width=5:"
              "query_latent_width=7:shared_key_width=2"),
      (Names{"query_down_projection.weight 7 32", "query_down_norm.weight 7",
             "query_projection.weight 32 7", "latent_projection.weight 7 32",
             "latent_norm.weight 5", "key_projection.weight 24 5",
             "value_projection.weight 24 5", "out_projection.weight 32 24"}));
}

TEST(SoftmaxForm, KeepsAndReadsWhatItsWindowNeeds) {
  const auto view = [](const char* layers) {
    return LayerView(Finished(LayersOf(layers)), 0);
  };
  const auto state = [&](const char* layers) {
    const ModelConfig layer = view(layers);
    return Spec(layer.attention).state(layer);
  };
  EXPECT_EQ(state("full")[0].kept, 0);
  EXPECT_EQ(state("full:window=9:key_heads=2")[0].kept, 9);
  EXPECT_EQ(state("full:window=9:key_heads=2")[1].shape,
            (std::vector<int64_t>{2, 6}));
  EXPECT_EQ(state("local:local_context=7")[0].kept, 4);
  const StateSpec latent =
      state("full:latent_width=5:shared_key_width=2:qkv_bias=false");
  ASSERT_EQ(latent.size(), 1u);
  EXPECT_EQ(latent[0].shape, (std::vector<int64_t>{1, 7}));

  // Pairs counted one by one.
  const auto cost = [&](const char* layers, int64_t n) {
    const ModelConfig layer = view(layers);
    return Spec(layer.attention).cost(layer, n, /*causal=*/true);
  };
  for (const int64_t n : {1, 5, 9, 10, 40}) {
    int64_t pairs = 0;
    for (int64_t i = 0; i < n; ++i) pairs += std::min<int64_t>(i + 1, 9);
    const MixerCost windowed = cost("full:window=9", n);
    EXPECT_EQ(windowed.sequence_flop, 2 * pairs * (8 + 6)) << n;
    EXPECT_EQ(windowed.step_flop, 2 * std::min<int64_t>(n + 1, 9) * (8 + 6));
    EXPECT_EQ(cost("full", n).sequence_flop, n * (n + 1) * (8 + 6));
    EXPECT_EQ(cost("full:key_heads=2", n).step_bytes, 4 * n * (8 + 6) / 2);
  }
}

}  // namespace
}  // namespace tarn
