// Keys that a part of a model registers: each type through every form of a
// configuration, their places in lists, and what is refused.
#include "config/own_key.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "core/error.h"
#include "core/test_util.h"

namespace tarn {
namespace {

enum class Shade { kPale, kDeep };

MixerSpec Spectral() {
  return {
      .name = "spectral",
      .family = "spectra",
      .sections = {},
      .can = {.rotary = false},
      .weights =
          [](const ModelConfig& layer) {
            return std::vector<NamedShape>{
                {"w", {KeyOf<int64_t>(layer, "bands"), layer.d_model}}};
          },
      .keys = {{.name = "bands",
                .help = "bands",
                .type = IntegerKey{1, std::numeric_limits<int64_t>::max(), 3}},
               {.name = "shade",
                .help = "shade",
                .type = WordKey{{"pale", "deep"}, 1},
                .before = "tied_head"},
               {.name = "mirrored",
                .help = "mirrored",
                .type = FlagKey{true},
                .key = "mirror",
                .after = "n_layers"},
               {.name = "gain",
                .help = "gain",
                .type = RealKey{-1.0, 1.0, 0.0},
                .after = "n_layers",
                .strict = true,
                .training = true}}};
}

ModelConfig Configured() {
  static const AttentionKind kind = RegisterMixer(Spectral());
  ModelConfig config;
  config.attention = kind;
  SetKey(config, "bands", std::numeric_limits<int64_t>::max() - 1);
  SetKey(config, "shade", Shade::kPale);
  SetKey(config, "mirrored", false);
  SetKey(config, "gain", -0.5);
  return config;
}

size_t PlaceOf(std::string_view name) {
  const std::vector<ConfigKey> keys = ConfigKeys();
  return static_cast<size_t>(
      std::find_if(keys.begin(), keys.end(),
                   [&](const ConfigKey& key) { return name == key.name; }) -
      keys.begin());
}

TEST(OwnKey, EveryTypeKeepsItsValueInEveryForm) {
  ModelConfig config = Configured();
  config.d_model = config.n_heads = 1;
  SetKey(config, "bands", 4000);
  FinishConfig(config);
  const std::string json = ConfigToJson(config);
  EXPECT_TRUE(Contains(json, "\"mirror\": false")) << json;
  EXPECT_TRUE(Contains(json, "\"shade\": \"pale\"")) << json;
  EXPECT_TRUE(Contains(json, "\"gain\": -0.5")) << json;
  EXPECT_TRUE(Contains(json, "\"bands\": 4000")) << json;
  EXPECT_TRUE(ConfigFromJson(json).Take() == config);
  EXPECT_TRUE(ConfigFromPartialJson(ConfigToFlatJson(config)).Take() == config);
  EXPECT_EQ(KeyOf<Shade>(config, "shade"), Shade::kPale);
  EXPECT_FALSE(KeyOf<bool>(config, "mirrored"));
  EXPECT_EQ(KeyOf<double>(config, "gain"), -0.5);
  EXPECT_EQ(WeightShapes(config)[2].second, (std::vector<int64_t>{4000, 1}));
  SetConfigField(config, "layers", "spectral:mirrored=true:shade=deep,linear");
  config.n_layers = 2;
  FinishConfig(config);
  EXPECT_TRUE(KeyOf<bool>(LayerView(config, 0), "mirrored"));
  EXPECT_EQ(KeyOf<Shade>(LayerView(config, 0), "shade"), Shade::kDeep);
  EXPECT_EQ(KeyOf<Shade>(LayerView(config, 1), "shade"), Shade::kPale);
}

// Integers have all 64 bits, and a value at its default leaves no trace.
TEST(OwnKey, ValuesAreExactAndDefaultsAreNotKept) {
  ModelConfig config = Configured();
  EXPECT_EQ(KeyOf<int64_t>(config, "bands"),
            std::numeric_limits<int64_t>::max() - 1);
  SetConfigField(config, "bands", "9223372036854775807");
  EXPECT_EQ(KeyOf<int64_t>(config, "bands"),
            std::numeric_limits<int64_t>::max());
  for (const auto& [key, text] : {std::pair{"bands", "3"},
                                  {"shade", "deep"},
                                  {"mirrored", "true"},
                                  {"gain", "0"}}) {
    SetConfigField(config, key, text);
  }
  EXPECT_TRUE(config.own.empty());
}

TEST(OwnKey, PlacesInLists) {
  Configured();
  EXPECT_EQ(PlaceOf("mirrored"), PlaceOf("n_layers") + 1);
  EXPECT_EQ(PlaceOf("gain"), PlaceOf("n_layers") + 2);
  EXPECT_EQ(PlaceOf("shade") + 1, PlaceOf("tied_head"));
  EXPECT_EQ(PlaceOf("bands") + 2, ConfigKeys().size());  // before `layers`
}

TEST(OwnKey, WrongValuesNameTheKeyAndWhatItTakes) {
  ModelConfig config = Configured();
  const ModelConfig before = config;
  const struct {
    const char *key, *text, *wanted;
  } cases[] = {{"bands", "0", "an integer from 1 to 9223372036854775807"},
               {"bands", "2.5", "an integer from 1 to 9223372036854775807"},
               {"shade", "dark", "one of pale, deep"},
               {"shade", "0", "one of pale, deep"},
               {"mirrored", "1", "true or false"},
               {"gain", "nan", "a number from -1 to 1"}};
  for (const auto& c : cases) {
    try {
      SetConfigField(config, c.key, c.text);
      ADD_FAILURE() << c.key;
    } catch (const ArgumentError& error) {
      EXPECT_EQ(error.where(), c.key);
      EXPECT_EQ(error.wanted(), c.wanted);
    }
  }
  EXPECT_TRUE(config == before);
  for (const char* json :
       {R"({"mirrored": 1})", R"({"shade": 0})", R"({"bands": 2.5})",
        R"({"gain": "0.5"})", R"({"bands": true})"}) {
    EXPECT_FALSE(ConfigFromPartialJson(json).ok()) << json;
  }
  SetKey(config, "shade", Shade{7});
  EXPECT_THROW(FinishConfig(config), ArgumentError);
  EXPECT_THROW(KeyOf<bool>(config, "unknown"), ArgumentError);
  EXPECT_THROW(SetKey(config, "d_model", 8), ArgumentError);
}

// A key that no layer reads returns to its default, or is refused where that
// would hide a mistake.
TEST(OwnKey, UnreadKeys) {
  ModelConfig config = Configured();
  config.attention = AttentionKind{};
  EXPECT_THROW(FinishConfig(config), ArgumentError);
  SetKey(config, "gain", 0);
  FinishConfig(config);
  EXPECT_TRUE(config.own.empty());
}

TEST(OwnKey, TrainingKeysAreCopied) {
  const ModelConfig from = Configured();
  ModelConfig to = from;
  to.dropout = 0.25;
  SetKey(to, "gain", 0.5);
  SetKey(to, "mirrored", true);
  CopyTrainingKeys(from, to);
  EXPECT_EQ(to.dropout, from.dropout);
  EXPECT_EQ(KeyOf<double>(to, "gain"), -0.5);
  EXPECT_TRUE(KeyOf<bool>(to, "mirrored"));
}

TEST(OwnKey, RegistrationRefusesWhatIsNoKey) {
  Configured();
  const auto refused = [](OwnKey key) {
    MixerSpec spec = Spectral();
    spec.name = "other";
    spec.family = "others";
    spec.keys = {key};
    EXPECT_THROW(RegisterMixer(spec), ArgumentError) << key.name;
  };
  refused({.name = "far", .help = "", .type = IntegerKey{1, 2, 3}});
  refused({.name = "none", .help = "", .type = WordKey{{}, 0}});
  refused({.name = "third", .help = "", .type = WordKey{{"a", "b"}, 2}});
  refused({.name = "bands", .help = "", .type = FlagKey{}});
  refused({.name = "n_heads", .help = "", .type = FlagKey{}});
  refused({.name = "inside", .help = "", .type = FlagKey{}, .section = "norm"});
}

}  // namespace
}  // namespace tarn
