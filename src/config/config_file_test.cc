// config.json: what it holds, identity, damaged files.
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

Json DefaultJson() { return Json::parse(ConfigToJson(ModelConfig{})); }

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
      {"experts", "4"},
      {"experts_per_token", "3"},
      {"d_expert", "5"},
      {"expert_part", "relu2"},
      {"router", "sigmoid"},
      {"router_normalize", "false"},
      {"router_scale", "2.5"},
      {"d_shared", "6"},
      {"shared_gate", "true"},
      {"balance_loss", "0.5"},
      {"window", "64"},
      {"qkv_bias", "false"},
      {"out_bias", "false"},
      {"head_norm", "full"},
      {"head_norm_eps", "0.25"},
      {"head_gate", "true"},
      {"score_scale", "0.125"},
      {"softcap", "50.0"},
      {"sinks", "true"},
      {"latent_width", "16"},
      {"query_latent_width", "12"},
      {"shared_key_width", "4"},
      {"rotary_scaling", "llama3"},
      {"rotary_factor", "8.0"},
      {"rotary_original_positions", "64"},
      {"rotary_low", "2.5"},
      {"rotary_high", "16.0"},
      {"rotary_magnitude", "0.75"},
      {"rotary_truncate", "false"},
      {"embedding_factor", "2.5"},
      {"residual_factor", "0.25"},
      {"logit_factor", "0.125"},
      {"logit_softcap", "30.0"},
      {"conv_bias", "true"},
      {"gate_softcap", "7.5"},
      {"branch_factor", "0.75"},
      {"input_norm", "true"},
      {"feed_forward_bias", "none"},
      {"head_bias", "false"},
      {"parallel_residual", "true"},
      {"rotate", "false"},
      {"own_rotary_base", "500.0"},
      {"value_residual", "true"},
      {"recurrent_in_bias", "true"},
      {"recurrent_out_bias", "true"},
      {"mamba2_norm", "false"},
      {"mamba2_norm_first", "true"},
      {"least_step", "0.125"},
      {"most_step", "2.5"},
      {"selection_norm", "true"},
      {"selection_norm_eps", "0.25"},
      {"learned_bounds", "true"},
      {"gate_activation", "none"},
      {"gate_bias", "true"},
      {"output_norm_eps", "0.25"},
      {"shift_rank", "3"},
      {"rate_rank", "4"},
      {"output_gate_rank", "5"},
      {"value_rank", "6"},
      {"unit_eps", "0.5"},
      {"qk_map", "hedgehog"},
      {"unit_queries", "true"},
      {"unit_keys", "true"},
      {"divided_sums", "true"},
      {"norm_offset", "1.0"},
      {"layers", "conditional-full,exact-topk,reformer,aft-full"}};
  // Each of these excludes one of the others.
  const std::set<std::string> alone = {"stabilise",
                                       "kernel_size",
                                       "tied_head",
                                       "n_classes",
                                       "bidirectional",
                                       "n_mixtures",
                                       "image_height",
                                       "image_width",
                                       "image_channels",
                                       "input_dim",
                                       "key_heads",
                                       "conv_width",
                                       "gate_rank",
                                       "negative_eigenvalues",
                                       "rotary_width",
                                       "output_gate",
                                       "query_key_norm",
                                       "experts",
                                       "experts_per_token",
                                       "d_expert",
                                       "expert_part",
                                       "router",
                                       "router_normalize",
                                       "router_scale",
                                       "d_shared",
                                       "shared_gate",
                                       "balance_loss",
                                       "window",
                                       "qkv_bias",
                                       "out_bias",
                                       "head_norm",
                                       "head_norm_eps",
                                       "head_gate",
                                       "score_scale",
                                       "softcap",
                                       "sinks",
                                       "latent_width",
                                       "query_latent_width",
                                       "shared_key_width",
                                       "rotary_scaling",
                                       "rotary_factor",
                                       "rotary_original_positions",
                                       "rotary_low",
                                       "rotary_high",
                                       "rotary_magnitude",
                                       "rotary_truncate",
                                       "value_residual",
                                       "parallel_residual",
                                       "rotate",
                                       "own_rotary_base",
                                       "recurrent_in_bias",
                                       "recurrent_out_bias",
                                       "mamba2_norm",
                                       "mamba2_norm_first",
                                       "least_step",
                                       "most_step",
                                       "selection_norm",
                                       "selection_norm_eps",
                                       "conv_bias",
                                       "gate_softcap",
                                       "learned_bounds",
                                       "gate_activation",
                                       "gate_bias",
                                       "output_norm_eps",
                                       "shift_rank",
                                       "rate_rank",
                                       "output_gate_rank",
                                       "value_rank",
                                       "unit_eps",
                                       "qk_map",
                                       "unit_queries",
                                       "unit_keys",
                                       "divided_sums"};
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
  for (const auto& [key, value] : std::map<std::string, std::string>{
           {"layers", "kda,gdn:conv_width=0,gated-full"},
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
  EXPECT_EQ(KeyOf<int64_t>(back, "key_heads"), 2);
  EXPECT_EQ(KeyOf<int64_t>(back, "gate_rank"), 5);
  EXPECT_TRUE(KeyOf<bool>(back, "negative_eigenvalues"));
  EXPECT_EQ(KeyOf<int64_t>(back, "rotary_width"), 6);
  EXPECT_FALSE(KeyOf<bool>(back, "output_gate"));
  EXPECT_TRUE(KeyOf<bool>(back, "query_key_norm"));
  EXPECT_EQ(KeyOf<int64_t>(LayerView(back, 0), "conv_width"), 3);
  EXPECT_EQ(KeyOf<int64_t>(LayerView(back, 1), "conv_width"), 0);
}

// Sections that a file holds only where a key is not at its default.
TEST(Config, KeysOfMambaGoThroughJson) {
  ModelConfig config;
  Set(config, "layers", "mamba1,mamba2:least_step=0.5:most_step=2");
  const std::string plain = ConfigToJson(Finished(config));
  EXPECT_FALSE(Contains(plain, "selection_norm"));
  Set(config, "selection_norm", "true");
  Set(config, "mamba2_norm", "false");
  config = Finished(config);
  const ModelConfig back = ConfigFromJson(ConfigToJson(config)).Take();
  EXPECT_EQ(back, config);
  EXPECT_TRUE(KeyOf<bool>(LayerView(back, 0), "selection_norm"));
  EXPECT_FALSE(KeyOf<bool>(LayerView(back, 1), "mamba2_norm"));
  EXPECT_EQ(KeyOf<double>(LayerView(back, 1), "least_step"), 0.5);
  Set(config, "most_step", "0.25");
  EXPECT_EQ(ErrorOf([&] { Finished(config); }).code(), ErrorCode::kOk);
  Set(config, "layers", "mamba2:least_step=0.5:most_step=0.25");
  EXPECT_EQ(ErrorOf([&] { Finished(config); }).where(), "most_step");
}

TEST(Config, FileMustHoldEveryKeyAndNoOther) {
  const Json whole = DefaultJson();
  for (const auto& [section, keys] : whole.items()) {
    Json json = whole;
    json.erase(section);
    Error error = ReadError(json);
    EXPECT_EQ(error.code(), ErrorCode::kFormat) << section;
    EXPECT_TRUE(Contains(error.what(), section)) << error.what();
    if (!keys.is_object()) continue;
    for (const auto& [key, value] : keys.items()) {
      json = whole;
      json[section].erase(key);
      error = ReadError(json);
      EXPECT_EQ(error.code(), ErrorCode::kFormat) << key;
      EXPECT_TRUE(Contains(error.what(), StrCat(section, ".", key)))
          << error.what();
    }
  }
  Json extra = whole;
  extra["modle"] = Json::object();
  EXPECT_TRUE(Contains(ReadError(extra).what(), "'modle'"));
  extra = whole;
  extra["model"]["d_modle"] = 1;
  EXPECT_TRUE(Contains(ReadError(extra).what(), "'d_modle'"));
  // Of transformers' type of model tarn's own is known.
  extra = whole;
  extra["model_type"] = "tarn";
  EXPECT_TRUE(ConfigFromJson(extra.dump()).ok());
  extra["model_type"] = "llama";
  EXPECT_TRUE(Contains(ReadError(extra).what(), "'model_type'"));
  // Flat keys are for objects written by hand.
  extra = whole;
  extra["d_model"] = 128;
  EXPECT_TRUE(Contains(ReadError(extra).what(), "'d_model'"));
  EXPECT_TRUE(Contains(ReadError(Json{{"format_version", 4}}).given(),
                       "missing: model.vocab_size, model.d_model"));
}

// State files name their model by a hash over this text.
TEST(Config, IdentityIsWhatTheModelReads) {
  const ModelConfig lm = Finished();
  EXPECT_EQ(ConfigIdentity(ModelConfig{}), ConfigIdentity(lm));
  const Json keys = Json::parse(ConfigIdentity(lm));
  const Json sections = DefaultJson();
  size_t count = 1;
  for (const auto& [section, of] : sections.items()) {
    if (of.is_object()) count += of.size();
  }
  // Each key of a file, and the mixer, which a file names in its pattern.
  EXPECT_EQ(keys.size(), count + 1);
  EXPECT_EQ(keys.at("attention"), "linear");
  ModelConfig other;
  other.d_model = 96;
  EXPECT_NE(ConfigIdentity(other), ConfigIdentity(lm));
  // A key of a part that the model does not have changes nothing.
  other = {};
  SetKey(other, "clusters", 17);
  EXPECT_EQ(ConfigIdentity(other), ConfigIdentity(lm));
  ModelConfig hybrid;
  hybrid.layers = LayersFromText("linear,full");
  EXPECT_TRUE(Contains(ConfigIdentity(hybrid), "\"layers\": [\"linear\", "));
  hybrid.d_model = 0;
  EXPECT_THROW((void)ConfigIdentity(hybrid), ArgumentError);
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
      {"model.d_model", "128"},
      {"model.d_model", true},
      {"model.d_model", nullptr},
      {"model.d_model", 128.5},
      {"model.d_model", -128},
      {"model.d_model", 0},
      {"model.d_model", 1e300},
      {"model.d_model", UINT64_MAX},
      {"model.d_model", Json::array()},
      {"model.d_model", Json::object()},
      {"model.d_key", 0},
      {"feed_forward.d_ff", 0},
      {"model.n_heads", int64_t{1} << 62},
      {"model.dropout", 1},
      {"model.dropout", "0.1"},
      {"model.dropout", true},
      {"norm.final", 1},
      {"norm.final", "true"},
      {"layers", 0},
      {"layers", "softmax"},
      {"layers", Json::array({"softmax"})},
      {"layers", nullptr},
      {"positions.rotary_base", 0.5},
  };
  for (const auto& [key, value] : cases) {
    Json json = DefaultJson();
    const std::string name = key;
    const size_t dot = name.find('.');
    (dot == name.npos ? json[name]
                      : json[name.substr(0, dot)][name.substr(dot + 1)]) =
        value;
    const Error error = ReadError(json);
    EXPECT_EQ(error.code(), ErrorCode::kFormat) << key << " = " << value;
    EXPECT_EQ(error.where(), "config.json: " + std::string(key));
  }
  Json json = DefaultJson();
  json["model"]["d_model"] = 128.0;
  json["model"]["dropout"] = 0;
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
      if (result.ok()) {  // a digit or a space became another: still valid
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
