// config.json: what it holds, earlier formats, identity, damaged files.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "config/identity.h"
#include "config/model_config.h"
#include "config/test_util.h"
#include "core/hash.h"
#include "core/test_util.h"
#include "core/text.h"

namespace tarn {
namespace {

using Json = nlohmann::json;

// The default as format 3 wrote it: all keys side by side.
Json DefaultJson() {
  Json json = Json::parse(ConfigToFlatJson(ModelConfig{}));
  for (const char* key : {"norm_kind", "feed_forward", "key_heads", "conv_width",
                          "gate_rank", "negative_eigenvalues", "rotary_width",
                          "output_gate", "query_key_norm"}) json.erase(key);
  json["format_version"] = 3;
  return json;
}

Error ReadError(const Json& json) {
  const auto result = ConfigFromJson(json.dump());
  return result.ok() ? Error(ErrorCode::kOk, "no error") : result.error();
}

TEST(Config, JsonOfTheDefaultIsStable) {
  EXPECT_EQ(ConfigToJson(ModelConfig{}), R"({
  "format_version": 4,
  "model": {
    "vocab_size": 256,
    "d_model": 128,
    "n_layers": 4,
    "n_heads": 4,
    "d_key": 32,
    "d_value": 32,
    "dropout": 0.0,
    "tied_head": false,
    "tokenizer": "byte",
    "arch": "decoder",
    "task": "lm",
    "n_classes": 0,
    "n_decoder_layers": 0,
    "cross_attention": "linear",
    "input_dim": 0
  },
  "layers": ["linear"],
  "linear": {
    "feature_map": "elu1",
    "denominator": "exact",
    "eps": 1e-06,
    "n_dims": 0,
    "stabilise": false,
    "redraw": 1,
    "feature_seed": 0
  },
  "positions": {
    "kind": "learned",
    "combine": "add",
    "max_positions": 1024,
    "rotary_place": "before",
    "rotary_base": 10000.0
  },
  "norm": {
    "place": "pre",
    "kind": "layer",
    "final": true,
    "eps": 1e-05
  },
  "feed_forward": {
    "d_ff": 512,
    "activation": "gelu",
    "kind": "mlp"
  }
}
)");
}

TEST(Config, EveryKeyGoesThroughTextAndJson) {
  const std::map<std::string, std::string> values = {
      {"vocab_size", "16777216"},
      {"d_model", "96"},
      {"n_layers", "7"},
      {"n_heads", "3"},
      {"d_key", "10"},
      {"d_value", "10"},
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
      {"tokenizer", "char"},
      {"arch", "seq2seq"},
      {"task", "seq2seq"},
      {"n_classes", "5"},
      {"n_decoder_layers", "2"},
      {"cross_attention", "full"},
      {"local_context", "17"},
      {"topk", "3"},
      {"length_limit", "9"},
      {"clusters", "6"},
      {"iterations", "4"},
      {"bits", "31"},
      {"hash_bias", "false"},
      {"hash_chunk", "5"},
      {"rounds", "2"},
      {"max_sequence_length", "77"},
      {"aft_parameterization", "8"},
      {"n_dims", "21"},
      {"stabilise", "true"},
      {"redraw", "0"},
      {"feature_seed", "9007199254740993"},
      {"bidirectional", "true"},
      {"kernel_size", "4"},
      {"n_mixtures", "5"},
      {"image_height", "28"},
      {"image_width", "14"},
      {"image_channels", "3"},
      {"input_dim", "40"},
      {"norm_kind", "rms"},
      {"feed_forward", "swiglu"},
      {"key_heads", "3"},
      {"conv_width", "2"},
      {"gate_rank", "7"},
      {"negative_eigenvalues", "true"},
      {"rotary_width", "4"},
      {"output_gate", "false"},
      {"query_key_norm", "false"},
      {"layers", "conditional-full,exact-topk,reformer,aft-full"}};
  // Each of these excludes one of the others.
  const std::set<std::string> alone = {
      "stabilise",    "kernel_size",  "tied_head",   "n_classes",      "bidirectional",
      "n_mixtures",
      "image_height", "image_width", "image_channels", "input_dim",
      "key_heads", "conv_width", "gate_rank", "negative_eigenvalues",
      "rotary_width", "output_gate", "query_key_norm"};
  const ModelConfig defaults = Finished();
  const Json default_json = Json::parse(ConfigToFlatJson(defaults));
  EXPECT_EQ(ConfigKeys().size(), values.size());
  ModelConfig all;
  for (const ConfigKey& key : ConfigKeys()) {
    EXPECT_GT(std::string(key.help).size(), 5u);
    ASSERT_EQ(default_json.contains(key.name),
              std::string(key.name) != "layers")
        << key.name;
    ModelConfig one = defaults;
    Set(one, key.name, values.at(key.name));
    EXPECT_NE(one, defaults) << key.name << " is not connected to its field";
    if (!alone.contains(key.name)) Set(all, key.name, values.at(key.name));
  }
  all = Finished(all);
  const ModelConfig back = ConfigFromJson(ConfigToJson(all)).Take();
  EXPECT_EQ(back, all);
  EXPECT_EQ(ConfigFromPartialJson(ConfigToFlatJson(all)).Take(), all);
  EXPECT_EQ(ConfigToJson(back), ConfigToJson(all));
  const Json all_json = Json::parse(ConfigToFlatJson(all));
  for (const auto& [key, value] : all_json.items()) {
    if (key == "format_version" || alone.contains(key)) continue;
    if (!default_json.contains(key)) continue;  // layers: none by default
    EXPECT_NE(value, default_json.at(key)) << key;
  }
}

// The keys of the gated mixers, which no other model of this file reads.
TEST(Config, KeysOfGatedMixersGoThroughJson) {
  ModelConfig config;
  for (const auto& [key, value] :
       std::map<std::string, std::string>{{"layers", "kda,gdn:conv_width=0,gated-full"},
                                          {"n_heads", "4"},
                                          {"n_layers", "3"},
                                          {"positions", "rotary"},
                                          {"key_heads", "2"},
                                          {"conv_width", "3"},
                                          {"gate_rank", "5"},
                                          {"rotary_width", "6"},
                                          {"output_gate", "false"},
                                          {"negative_eigenvalues", "true"}}) {
    Set(config, key, value);
  }
  config = Finished(config);
  const ModelConfig back = ConfigFromJson(ConfigToJson(config)).Take();
  EXPECT_EQ(back, config);
  EXPECT_EQ(back.key_heads, 2);
  EXPECT_EQ(back.gate_rank, 5);
  EXPECT_TRUE(back.negative_eigenvalues);
  EXPECT_EQ(back.rotary_width, 6);
  EXPECT_FALSE(back.output_gate);
  EXPECT_TRUE(back.query_key_norm);
  EXPECT_EQ(LayerView(back, 0).conv_width, 3);
  EXPECT_EQ(LayerView(back, 1).conv_width, 0);
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
  EXPECT_TRUE(Contains(ReadError(Json{{"format_version", 2}}).given(),
                       "46 missing: vocab_size, d_model"));
  EXPECT_TRUE(Contains(ReadError(Json{{"format_version", 3}}).given(),
                       "51 missing: vocab_size, d_model"));
}

TEST(Config, FirstFormatIsReadWithDefaults) {
  Json json = DefaultJson();
  json["format_version"] = 1;
  EXPECT_TRUE(Contains(ReadError(json).what(), "format 1"));
  Json first = {{"format_version", 1}};
  for (const ConfigKey& key : ConfigKeys()) {
    if (!json.contains(key.name)) continue;  // of a later format
    first[key.name] = json[key.name];
    if (std::string(key.name) == "tokenizer") break;
  }
  EXPECT_EQ(first.size(), 25u);
  first["d_model"] = 96;
  ModelConfig want = Finished();
  want.d_model = 96;
  EXPECT_EQ(ConfigFromJson(first.dump()).Take(), want);
}

TEST(Config, SecondFormatIsReadWithDefaults) {
  Json json = DefaultJson();
  json["format_version"] = 2;
  EXPECT_TRUE(Contains(ReadError(json).what(), "format 2"));
  for (const char* key : {"n_mixtures", "image_height", "image_width",
                          "image_channels", "input_dim"}) {
    json.erase(key);
  }
  json["d_model"] = 96;
  ModelConfig want = Finished();
  want.d_model = 96;
  EXPECT_EQ(ConfigFromJson(json.dump()).Take(), want);
}

// State files name their model by a hash over this text: format 2's, to the
// byte, for all that format 2 could express.
TEST(Config, IdentityOutlivesTheFormat) {
  // What a format wrote: the keys it had, side by side.
  const auto written = [](const ModelConfig& config, int version) {
    std::istringstream lines(ConfigToFlatJson(config));
    std::string text, line;
    while (std::getline(lines, line)) {
      const std::string key = line.substr(0, line.find(':'));
      const bool fourth =
          key == "  \"norm_kind\"" || key == "  \"feed_forward\"";
      // Added to format 4 later, and in no text of a model without them.
      const bool gated =
          key == "  \"key_heads\"" || key == "  \"conv_width\"" ||
          key == "  \"gate_rank\"" || key == "  \"negative_eigenvalues\"" ||
          key == "  \"rotary_width\"" || key == "  \"output_gate\"" ||
          key == "  \"query_key_norm\"";
      const bool third = key.starts_with("  \"image_") ||
                         key == "  \"n_mixtures\"" || key == "  \"input_dim\"";
      if (gated || (fourth && version < 4) || (third && version < 3)) continue;
      if (line == "}" && text.ends_with(",\n")) text.erase(text.size() - 2, 1);
      text += line + "\n";
    }
    return text.replace(text.find(": 4,"), 4, StrCat(": ", version, ","));
  };
  const ModelConfig lm = Finished();
  EXPECT_EQ(ConfigIdentity(lm), written(lm, 2));
  EXPECT_EQ(ConfigIdentity(ModelConfig{}), ConfigIdentity(lm));
  // The hash of the text that format 2 wrote for a model of defaults.
  EXPECT_EQ(HashBytes(ConfigIdentity(lm)), 10841014295145434918u);
  ModelConfig classifier;
  classifier.arch = Arch::kLstm;
  classifier.task = Task::kClassify;
  classifier.n_classes = 4;
  FinishConfig(classifier);
  EXPECT_EQ(ConfigIdentity(classifier), written(classifier, 2));
  // A model that needs keys of format 3 has all of them, and none of format 4.
  ModelConfig image;
  image.task = Task::kImage;
  image.image_height = image.image_width = 8;
  image.image_channels = 1;
  FinishConfig(image);
  EXPECT_EQ(ConfigIdentity(image), written(image, 3));
  image.n_mixtures = 5;
  EXPECT_EQ(ConfigIdentity(image), written(image, 3));
  ModelConfig hybrid;
  hybrid.layers = LayersFromText("linear,full");
  FinishConfig(hybrid);
  EXPECT_EQ(ConfigIdentity(hybrid), written(hybrid, 4));
  EXPECT_TRUE(Contains(ConfigIdentity(hybrid), "\"layers\": [\"linear\", "));
  image.d_model = 0;
  EXPECT_THROW((void)ConfigIdentity(image), ArgumentError);
}

TEST(Config, PartialJsonTakesDefaults) {
  const auto read = [](const char* text) {
    return ConfigFromPartialJson(text);
  };
  EXPECT_EQ(read("{}").Take(), Finished());
  ModelConfig want;
  want.d_model = 64;
  want.arch = Arch::kCnn;
  EXPECT_EQ(read(R"({"d_model": 64, "d_key": 0, "arch": "cnn"})").Take(),
            Finished(want));
  for (const char* text :
       {R"({"d_modle": 64})", R"({"d_model": 0})", R"({"d_model": "64"})",
        R"({"n_heads": 3})", R"({"format_version": 5})", "[]"}) {
    EXPECT_EQ(read(text).error().code(), ErrorCode::kFormat) << text;
  }
}

TEST(Config, FileValuesAreTypedAndRanged) {
  const std::vector<std::pair<const char*, Json>> cases = {
      {"format_version", 5},
      {"format_version", 0},
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

}  // namespace
}  // namespace tarn
