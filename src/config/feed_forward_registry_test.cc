#include <gtest/gtest.h>

#include <string>

#include "config/feed_forward_form.h"
#include "config/model_config.h"
#include "core/test_util.h"

namespace tarn {
namespace {

ModelConfig WithLayers(const char* layers) {
  ModelConfig config;
  config.layers = LayersFromText(layers);
  FinishConfig(config);
  return config;
}

TEST(FeedForwardRegistry, NamesAreTheWordsOfTheKey) {
  EXPECT_EQ(std::string("mlp"), Name(ModelConfig().feed_forward));
  for (const char* name : FeedForwardNames()) {
    ModelConfig config;
    SetConfigField(config, "feed_forward", name);
    EXPECT_EQ(std::string(name), Name(config.feed_forward));
    EXPECT_EQ(FeedForwardOf(name), config.feed_forward);
  }
  const Error error = ErrorOf([] { FeedForwardOf("glu"); });
  EXPECT_EQ("feed_forward", error.where());
  EXPECT_TRUE(Contains(error.wanted(), "swiglu"));
}

TEST(FeedForwardRegistry, AProgramAddsAPart) {
  FeedForwardSpec spec;
  spec.name = "halved";
  spec.weights = [](const ModelConfig& c) -> std::vector<NamedShape> {
    return {{"linear1.weight", {c.d_ff, c.d_model}}};
  };
  const FeedForwardKind kind = RegisterFeedForward(spec);
  EXPECT_EQ(std::string("halved"), Name(kind));
  ModelConfig config;
  SetConfigField(config, "feed_forward", "halved");
  FinishConfig(config);
  EXPECT_EQ(FeedForwardShapes(config).size(), 1u);
  EXPECT_TRUE(Contains(ConfigToJson(config), "\"kind\": \"halved\""));
  EXPECT_EQ("RegisterFeedForward: spec.name",
            ErrorOf([&] { RegisterFeedForward(spec); }).where());
  spec.name = "without weights";
  spec.weights = nullptr;
  EXPECT_EQ("RegisterFeedForward: spec",
            ErrorOf([&] { RegisterFeedForward(spec); }).where());
}

TEST(FeedForwardRegistry, ALayerMayHaveItsOwnPart) {
  const char* text = "linear:feed_forward=none,full";
  const ModelConfig config = WithLayers(text);
  EXPECT_EQ(text, LayersText(config));
  EXPECT_EQ(config, ConfigFromJson(ConfigToJson(config)).Take());
  EXPECT_FALSE(HasFeedForward(LayerView(config, 0)));
  EXPECT_TRUE(HasFeedForward(LayerView(config, 1)));
  // Alike in all layers it is the model's.
  const ModelConfig same = WithLayers("full:feed_forward=relu2");
  EXPECT_TRUE(same.layers.empty());
  EXPECT_EQ(std::string("relu2"), Name(same.feed_forward));
  EXPECT_EQ("layers",
            ErrorOf([] { WithLayers("full:feed_forward=glu"); }).where());
}

TEST(FeedForwardRegistry, PartsThatAStackCannotHaveAreRefused) {
  const auto refused = [](const char* arch, const char* layers) {
    ModelConfig config;
    SetConfigField(config, "arch", arch);
    if (std::string(arch) == "encoder") config.n_classes = 2;
    config.layers = LayersFromText(layers);
    return ErrorOf([&] { FinishConfig(config); });
  };
  EXPECT_EQ(ErrorCode::kOk,
            refused("encoder", "full:feed_forward=none,full").code());
  const Error error = refused("encoder", "full,full:feed_forward=channel-mix");
  EXPECT_EQ("feed_forward", error.where());
  EXPECT_TRUE(Contains(error.wanted(), "mlp, swiglu, none")) << error.wanted();
  EXPECT_EQ("feed_forward",
            refused("seq2seq", "full:feed_forward=none,full").where());
}

}  // namespace
}  // namespace tarn
