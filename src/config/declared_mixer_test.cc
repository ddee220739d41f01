// A mixer described as data: its sizes, its keys in every form of a
// configuration, and what is refused with nothing registered.
#include "config/declared_mixer.h"

#include <gtest/gtest.h>

#include "config/model_config.h"
#include "config/tables.h"
#include "core/test_util.h"

namespace tarn {
namespace {

constexpr const char* kRow = R"({
  "name": "told", "family": "telling",
  "weights": [["w", ["d_model", "n_heads*d_key"]], ["b", [3]]],
  "state": [{"name": "m", "shape": ["d_model"], "initial": -1.5},
            {"name": "rows", "shape": ["n_heads*d_value"], "grows": true}],
  "keys": [{"name": "told_rate", "key": "rate", "help": "of telling",
            "min": 0, "max": 2, "default": 0.5},
           {"name": "told_rows", "help": "told", "min": 1, "max": 9,
            "default": 4, "integer": true}]})";

AttentionKind Told() {
  static const AttentionKind kind = RegisterDeclaredMixer(kRow);
  return kind;
}

ModelConfig Small(const char* layers) {
  Told();
  ModelConfig config;
  config.d_model = 12;
  config.n_heads = 3;
  config.d_key = 5;
  config.n_layers = 2;
  config.layers = LayersFromText(layers);
  FinishConfig(config);
  return config;
}

TEST(DeclaredMixer, SizesComeFromTheView) {
  const ModelConfig config = Small("told");
  const MixerSpec& spec = Spec(Told());
  EXPECT_EQ(spec.weights(config),
            (std::vector<NamedShape>{{"w", {12, 15}}, {"b", {3}}}));
  const StateSpec state = spec.state(config);
  ASSERT_EQ(state.size(), 2u);
  EXPECT_STREQ(state[0].name, "m");
  EXPECT_EQ(state[0].shape, std::vector<int64_t>{12});
  EXPECT_EQ(state[0].initial, -1.5f);
  EXPECT_EQ(state[1].shape, std::vector<int64_t>{12});
  EXPECT_TRUE(state[1].grows && spec.can.recurrent && !spec.can.bidirectional);
  EXPECT_TRUE(
      Contains(MixerTable(), "\"name\":\"told\",\"family\":\"telling\""));
  EXPECT_TRUE(Contains(StateTable(config), "\"initial\":-1.5"));
}

TEST(DeclaredMixer, KeysGoThroughEveryForm) {
  const ModelConfig config = Small("told:told_rows=7:told_rate=1.25,linear");
  EXPECT_EQ(KeyOf<int64_t>(LayerView(config, 0), "told_rows"), 7);
  EXPECT_EQ(KeyOf<double>(LayerView(config, 1), "told_rate"), 0.5);
  const std::string json = ConfigToJson(config);
  EXPECT_TRUE(Contains(
      json, "\"telling\": {\n    \"rate\": 0.5,\n    \"told_rows\": 4"))
      << json;
  EXPECT_TRUE(Contains(json, "\"told_rate\": 1.25, \"told_rows\": 7")) << json;
  const ModelConfig read = ConfigFromJson(json).Take();
  EXPECT_TRUE(read == config);
  EXPECT_EQ(ConfigToJson(read), json);
  const ModelConfig flat =
      ConfigFromPartialJson(ConfigToFlatJson(config)).Take();
  EXPECT_TRUE(flat == config);
  EXPECT_EQ(LayersText(read), "told:told_rate=1.25:told_rows=7,linear");
  // Keys that no layer reads have their defaults, and no file names them.
  ModelConfig plain;
  SetConfigField(plain, "told_rate", "2");
  FinishConfig(plain);
  EXPECT_TRUE(plain.own.empty());
  EXPECT_FALSE(Contains(ConfigToJson(plain), "tell"));
}

TEST(DeclaredMixer, KeysAreNumbersFlagsAndWords) {
  RegisterDeclaredMixer(R"({
    "name": "hinted", "weights": [["w", ["d_model"]]],
    "keys": [{"name": "hinted_back", "help": "", "default": true},
             {"name": "hinted_way", "help": "", "words": ["up", "down"],
              "default": "down"}]})");
  ModelConfig config = Small("linear,full");
  config.layers =
      LayersFromText("hinted:hinted_way=up:hinted_back=false,hinted");
  FinishConfig(config);
  EXPECT_EQ(KeyOf<int64_t>(LayerView(config, 0), "hinted_way"), 0);
  EXPECT_FALSE(KeyOf<bool>(LayerView(config, 0), "hinted_back"));
  EXPECT_EQ(KeyOf<int64_t>(LayerView(config, 1), "hinted_way"), 1);
  EXPECT_TRUE(KeyOf<bool>(LayerView(config, 1), "hinted_back"));
  const std::string json = ConfigToJson(config);
  EXPECT_TRUE(Contains(json, "\"hinted_way\": \"down\"")) << json;
  EXPECT_TRUE(ConfigFromJson(json).Take() == config);
  EXPECT_THROW(RegisterDeclaredMixer(R"({
    "name": "astray", "weights": [["w", ["d_model"]]],
    "keys": [{"name": "astray_way", "help": "", "words": ["up", "down"],
              "default": "left"}]})"),
               FormatError);
}

TEST(DeclaredMixer, ValuesAreRefusedByTheirKey) {
  Told();
  for (const auto& [text, word] :
       {std::pair{R"({"attention": "told", "told_rate": 3})", "told_rate"},
        {R"({"attention": "told", "told_rate": "1"})", "told_rate"},
        {R"({"attention": "told", "told_rows": 1.5})", "told_rows"},
        {R"({"attention": "told", "telling": {"told_rate": 1}})", "telling"},
        {R"({"layers": [{"mixer": "linear", "told_rate": 1}]})", "layers"}}) {
    const auto config = ConfigFromPartialJson(text);
    ASSERT_FALSE(config.ok()) << text;
    EXPECT_TRUE(Contains(config.error().what(), word)) << config.error().what();
  }
}

TEST(DeclaredMixer, OtherFormsRegisterNothing) {
  Told();
  const size_t known = MixerNames().size();
  for (const char* text :
       {"", "[]", "{}", R"({"name": 3, "weights": []})", R"({"name": "a"})",
        R"({"name": "a", "weights": {}})",
        R"({"name": "a", "weights": [["w"]]})",
        R"({"name": "a", "weights": [["w", ["d_modle"]]]})",
        R"({"name": "a", "weights": [["w", ["norm"]]]})",
        R"({"name": "a", "weights": [["w", ["d_model*"]]]})",
        R"({"name": "a", "weights": [["w", [0]]]})",
        R"({"name": "a", "weights": [["w", [2.5]]]})",
        R"({"name": "a", "weights": [], "state": {}})",
        R"({"name": "a", "weights": [], "state": [{"shape": [1]}]})",
        R"({"name": "a", "weights": [], "keys": [{"name": "k"}]})",
        R"({"name": "a", "weights": [], "bidirectional": 1})"}) {
    EXPECT_THROW(RegisterDeclaredMixer(text), FormatError) << text;
  }
  for (const char* text :
       {R"({"name": "told", "weights": []})",
        R"({"name": "a", "weights": [], "keys": [{"name": "eps", "help": "",
            "min": 0, "max": 1, "default": 0}]})",
        R"({"name": "a", "weights": [], "keys": [{"name": "a_x", "help": "",
            "min": 0, "max": 1, "default": 2}]})",
        R"({"name": "a", "weights": [], "keys": [
            {"name": "a_x", "help": "", "min": 0, "max": 1, "default": 1},
            {"name": "a_x", "help": "", "min": 0, "max": 1, "default": 1}]})",
        R"({"name": "a", "family": "linear", "weights": [], "keys": [{"name":
            "a_x", "help": "", "min": 0, "max": 1, "default": 1}]})"}) {
    EXPECT_THROW(RegisterDeclaredMixer(text), ArgumentError) << text;
  }
  EXPECT_EQ(MixerNames().size(), known);
  EXPECT_FALSE(Contains(ConfigFieldTable(), "a_x"));
}

}  // namespace
}  // namespace tarn
