#include "core/config.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/test_util.h"

namespace tarn {
namespace {

using Json = nlohmann::json;

ModelConfig Finished(ModelConfig config = {}) {
  FinishConfig(config);
  return config;
}

Json DefaultJson() { return Json::parse(ConfigToJson(ModelConfig{})); }

Error ReadError(const Json& json) {
  const auto result = ConfigFromJson(json.dump());
  return result.ok() ? Error(ErrorCode::kOk, "no error") : result.error();
}

void Set(ModelConfig& config, const std::string& key, const std::string& text) {
  SetConfigField(config, key, text);
}

TEST(Config, FinishDerivesSizes) {
  const ModelConfig config = Finished();
  EXPECT_EQ(config.d_key, 32);
  EXPECT_EQ(config.d_value, 32);
  EXPECT_EQ(config.d_ff, 512);
  EXPECT_EQ(Finished(config), config);
  ModelConfig given;
  given.d_model = 100;
  given.n_heads = 3;
  given.d_key = 5;
  given.d_value = 7;
  given.d_ff = 11;
  EXPECT_EQ(Finished(given), given);
}

TEST(Config, JsonOfTheDefaultIsStable) {
  EXPECT_EQ(ConfigToJson(ModelConfig{}), R"({
  "format_version": 1,
  "vocab_size": 256,
  "d_model": 128,
  "n_layers": 4,
  "n_heads": 4,
  "d_key": 32,
  "d_value": 32,
  "d_ff": 512,
  "attention": "linear",
  "feature_map": "elu1",
  "denominator": "exact",
  "eps": 1e-06,
  "positions": "learned",
  "position_combine": "add",
  "max_positions": 1024,
  "rotary_place": "before",
  "rotary_base": 10000.0,
  "norm": "pre",
  "final_norm": true,
  "norm_eps": 1e-05,
  "activation": "gelu",
  "dropout": 0.0,
  "attention_dropout": 0.0,
  "tied_head": false,
  "tokenizer": "byte"
}
)");
}

// Every key set to something else than its default, through text and back.
TEST(Config, EveryKeyGoesThroughTextAndJson) {
  const std::map<std::string, std::string> values = {
      {"vocab_size", "16777216"},
      {"d_model", "96"},
      {"n_layers", "7"},
      {"n_heads", "3"},
      {"d_key", "10"},
      {"d_value", "12"},
      {"d_ff", "33"},
      {"attention", "full"},
      {"feature_map", "identity"},
      {"denominator", "compat"},
      {"eps", "0.1"},
      {"positions", "sinusoidal"},
      {"position_combine", "concat"},
      {"max_positions", "9"},
      {"rotary_place", "after"},
      {"rotary_base", "500000.25"},
      {"norm", "post"},
      {"final_norm", "false"},
      {"norm_eps", "1e-12"},
      {"activation", "relu"},
      {"dropout", "0.3333333333333333"},
      {"attention_dropout", "0.125"},
      {"tied_head", "true"},
      {"tokenizer", "char"}};
  const ModelConfig defaults = Finished();
  const Json default_json = DefaultJson();
  EXPECT_EQ(ConfigKeys().size(), values.size());
  ModelConfig all;
  for (const ConfigKey& key : ConfigKeys()) {
    EXPECT_GT(std::string(key.help).size(), 5u);
    ASSERT_TRUE(default_json.contains(key.name)) << key.name;
    ModelConfig one = defaults;
    Set(one, key.name, values.at(key.name));
    EXPECT_NE(one, defaults) << key.name << " is not connected to its field";
    if (std::string(key.name) != "tied_head") {  // not with concat
      Set(all, key.name, values.at(key.name));
    }
  }
  const ModelConfig back = ConfigFromJson(ConfigToJson(all)).Take();
  EXPECT_EQ(back, all);
  EXPECT_EQ(ConfigToJson(back), ConfigToJson(all));
  const Json all_json = Json::parse(ConfigToJson(all));
  for (const auto& [key, value] : all_json.items()) {
    if (key == "format_version" || key == "tied_head") continue;
    EXPECT_NE(value, default_json[key]) << key;
  }
}

TEST(Config, NamesAreTheWordsOfTheFile) {
  EXPECT_STREQ(Name(AttentionKind::kFull), "full");
  EXPECT_STREQ(Name(FeatureMap::kIdentity), "identity");
  EXPECT_STREQ(Name(FeatureMap::kRelu2), "relu2");
  EXPECT_STREQ(Name(FeatureMap::kFavorPositive), "favor-positive");
  EXPECT_STREQ(Name(FeatureMap::kSmoothedRff), "smoothed-rff");
  EXPECT_STREQ(Name(FeatureMap::kGrf), "grf");
  EXPECT_STREQ(Name(Denominator::kSigned), "signed");
  EXPECT_STREQ(Name(Denominator::kCompat), "compat");
  EXPECT_STREQ(Name(Positions::kRotary), "rotary");
  EXPECT_STREQ(Name(PositionCombine::kConcat), "concat");
  EXPECT_STREQ(Name(RotaryPlace::kAfter), "after");
  EXPECT_STREQ(Name(Norm::kPre), "pre");
  EXPECT_STREQ(Name(Activation::kRelu), "relu");
  EXPECT_STREQ(Name(TokenizerKind::kChar), "char");
  EXPECT_STREQ(Name(TokenizerKind::kBpe), "bpe");
  EXPECT_STREQ(Name(TokenizerKind::kWorld), "world");
}

TEST(Config, SetFieldNamesTheKeyAndTheAllowedValues) {
  struct Case {
    const char *key, *value, *wanted;
  };
  for (const Case& c : std::vector<Case>{
           {"d_model", "0", "an integer from 1 to 65536"},
           {"d_model", "65537", "an integer from 1 to 65536"},
           {"d_model", "12x", "an integer from 1 to 65536"},
           {"d_model", "", "an integer from 1 to 65536"},
           {"d_model", " 12", "an integer from 1 to 65536"},
           {"d_model", "99999999999999999999", "an integer from 1 to 65536"},
           {"d_key", "-1", "an integer from 0 to 65536"},
           {"n_layers", "4097", "an integer from 1 to 4096"},
           {"dropout", "1", "a number in [0, 1)"},
           {"dropout", "-0.1", "a number in [0, 1)"},
           {"dropout", "nan", "a number in [0, 1)"},
           {"rotary_base", "inf", "a number from 1 to 1e+12"},
           {"rotary_base", "1e999", "a number from 1 to 1e+12"},
           {"tied_head", "1", "true or false"},
           {"attention", "Linear", "one of linear, full"},
           {"positions", "", "one of none, sinusoidal, learned, rotary"}}) {
    ModelConfig config;
    const Error error = ErrorOf([&] { Set(config, c.key, c.value); });
    EXPECT_EQ(error.code(), ErrorCode::kArgument) << c.key << " " << c.value;
    EXPECT_EQ(error.where(), c.key);
    EXPECT_EQ(error.wanted(), c.wanted);
    EXPECT_EQ(error.given(), StrCat("'", c.value, "'"));
    EXPECT_EQ(config, ModelConfig{}) << "changed by a refused value";
  }
  ModelConfig config;
  const Error error = ErrorOf([&] { Set(config, "d_modle", "1"); });
  EXPECT_EQ(error.code(), ErrorCode::kArgument);
  EXPECT_EQ(error.given(), "'d_modle'");
}

TEST(Config, FinishRefusesCombinations) {
  using Change = std::function<void(ModelConfig&)>;
  const std::vector<std::pair<const char*, Change>> cases = {
      {"n_heads", [](ModelConfig& c) { c.n_heads = 3; }},
      {"position_combine",
       [](ModelConfig& c) { c.position_combine = PositionCombine::kConcat; }},
      {"d_model",
       [](ModelConfig& c) {
         c.positions = Positions::kSinusoidal;
         c.position_combine = PositionCombine::kConcat;
         c.d_model = 129;
         c.n_heads = 1;
       }},
      {"d_key",
       [](ModelConfig& c) {
         c.positions = Positions::kRotary;
         c.d_key = 7;
       }},
      {"tied_head",
       [](ModelConfig& c) {
         c.positions = Positions::kSinusoidal;
         c.position_combine = PositionCombine::kConcat;
         c.tied_head = true;
       }},
      {"attention_dropout", [](ModelConfig& c) { c.attention_dropout = 0.5; }},
      {"eps",
       [](ModelConfig& c) {
         c.eps = std::numeric_limits<double>::quiet_NaN();
       }},
      {"d_ff", [](ModelConfig& c) { c.d_ff = -1; }},
      {"vocab_size", [](ModelConfig& c) { c.vocab_size = INT64_MAX; }},
      {"attention",
       [](ModelConfig& c) { c.attention = static_cast<AttentionKind>(7); }},
  };
  for (const auto& [key, change] : cases) {
    ModelConfig config;
    change(config);
    const ModelConfig before = config;
    const Error error = ErrorOf([&] { FinishConfig(config); });
    EXPECT_EQ(error.code(), ErrorCode::kArgument) << key;
    EXPECT_EQ(error.where(), key) << error.what();
    if (before == before) {  // NaN differs from itself
      EXPECT_EQ(config, before) << key;
    }
  }
}

TEST(Config, TotalsAreBoundedWithoutOverflow) {
  ModelConfig config;
  config.vocab_size = 1 << 24;
  config.d_model = 1 << 16;
  config.n_layers = 1 << 12;
  config.n_heads = 1 << 12;
  config.d_key = config.d_value = 1 << 16;
  config.d_ff = 1 << 20;
  const Error parameters = ErrorOf([&] { FinishConfig(config); });
  EXPECT_EQ(parameters.code(), ErrorCode::kArgument);
  EXPECT_TRUE(Contains(parameters.wanted(), "parameters"));
  // The four projections alone: 4 * 2^12 layers * 2^28 * 2^16.
  EXPECT_GT(std::stoll(parameters.given()), int64_t{1} << 58);
  EXPECT_LT(std::stoll(parameters.given()), int64_t{1} << 59);

  // Few weights, a state of 16 GiB a layer.
  ModelConfig wide;
  wide.d_model = wide.n_heads = wide.n_layers = 1;
  wide.d_key = wide.d_value = 1 << 16;
  EXPECT_EQ(ErrorOf([&] { FinishConfig(wide); }).where(), "d_key");
  wide.attention = AttentionKind::kFull;  // has no such state
  FinishConfig(wide);
}

TEST(Config, FileMustHoldEveryKeyAndNoOther) {
  const Json whole = DefaultJson();
  for (const auto& [key, value] : whole.items()) {
    Json json = whole;
    json.erase(key);
    const Error error = ReadError(json);
    EXPECT_EQ(error.code(), ErrorCode::kFormat) << key;
    EXPECT_TRUE(Contains(error.what(), key)) << error.what();
  }
  Json extra = DefaultJson();
  extra["d_modle"] = 1;
  EXPECT_TRUE(Contains(ReadError(extra).what(), "'d_modle'"));
  EXPECT_TRUE(Contains(ReadError(Json{{"format_version", 1}}).given(),
                       "24 missing: vocab_size, d_model"));
}

TEST(Config, FileValuesAreTypedAndRanged) {
  const std::vector<std::pair<const char*, Json>> cases = {
      {"format_version", 2},
      {"format_version", "1"},
      {"d_model", "128"},
      {"d_model", true},
      {"d_model", nullptr},
      {"d_model", 128.5},
      {"d_model", -128},
      {"d_model", 0},
      {"d_model", 1e300},
      {"d_model", UINT64_MAX},
      {"d_model", Json::array()},
      {"d_model", Json::object()},
      {"d_key", 0},
      {"d_ff", 0},
      {"n_heads", int64_t{1} << 62},
      {"dropout", 1},
      {"dropout", "0.1"},
      {"dropout", true},
      {"final_norm", 1},
      {"final_norm", "true"},
      {"attention", 0},
      {"attention", "softmax"},
      {"attention", nullptr},
      {"rotary_base", 0.5},
      {"attention_dropout", 0.25},
  };
  for (const auto& [key, value] : cases) {
    Json json = DefaultJson();
    json[key] = value;
    const Error error = ReadError(json);
    EXPECT_EQ(error.code(), ErrorCode::kFormat) << key << " = " << value;
    EXPECT_EQ(error.where(), "config.json: " + std::string(key));
  }
  Json json = DefaultJson();
  json["d_model"] = 128.0;
  json["dropout"] = 0;
  EXPECT_EQ(ConfigFromJson(json.dump()).Take(), Finished());
}

TEST(Config, DamagedFilesAreErrors) {
  const std::string good = ConfigToJson(ModelConfig{});
  // The closing brace and newline: the rest cannot be cut.
  for (size_t length = 0; length + 1 < good.size(); ++length) {
    const auto result = ConfigFromJson(good.substr(0, length));
    ASSERT_FALSE(result.ok()) << "cut at " << length;
    EXPECT_EQ(result.error().code(), ErrorCode::kFormat);
  }
  for (size_t i = 0; i < good.size(); ++i) {
    for (const int bit : {0, 3, 7}) {
      std::string flipped = good;
      flipped[i] = static_cast<char>(flipped[i] ^ (1 << bit));
      const auto result = ConfigFromJson(flipped);
      if (result.ok()) {  // a digit or a space became another: still sound
        EXPECT_EQ(Finished(result.value()), result.value());
      } else {
        EXPECT_EQ(result.error().code(), ErrorCode::kFormat);
      }
    }
  }
  for (const std::string& text :
       {std::string("[]"), std::string("null"), std::string("NaN"),
        std::string(1 << 21, ' '), std::string(1 << 19, '['),
        StrCat("{\"format_version\":1,", good.substr(1))}) {
    EXPECT_FALSE(ConfigFromJson(text).ok());
  }
}

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

  ModelConfig tied;
  tied.tied_head = true;
  shapes = WeightShapes(tied);
  EXPECT_EQ(shapes.end()[-1].first, "predictor.bias");
  EXPECT_EQ(shapes.end()[-2].first, "norm.bias");
}

TEST(WeightShapesTest, ParameterCountIsTheirSum) {
  for (const char* positions : {"none", "learned", "rotary", "sinusoidal"}) {
    for (const char* tied : {"true", "false"}) {
      ModelConfig config;
      Set(config, "positions", positions);
      Set(config, "tied_head", tied);
      int64_t total = 0;
      std::set<std::string> names;
      for (const auto& [name, shape] : WeightShapes(config)) {
        int64_t elements = 1;
        for (const int64_t size : shape) elements *= size;
        total += elements;
        EXPECT_TRUE(names.insert(name).second) << name;
      }
      EXPECT_EQ(ParameterCount(config), total);
    }
  }
}

}  // namespace
}  // namespace tarn
