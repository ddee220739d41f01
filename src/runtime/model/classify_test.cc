// Classifiers: the oracle over kinds and maps, the same bits alone and in any
// batch, and labels.json from outside.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "core/feature_map.h"
#include "reference/test_model.h"
#include "runtime/model/labels.h"
#include "runtime/model/model.h"

namespace tarn::testing {
namespace {

const ConfigVariant kVariants[] = {
    {"Linear", [](ModelConfig&) {}},
    {"LinearPost", [](ModelConfig& c) { c.norm = Norm::kPost; }},
    {"Softmax", [](ModelConfig& c) { c.attention = MixerKind("full"); }},
    {"SoftmaxRotary",
     [](ModelConfig& c) {
       c.attention = MixerKind("full");
       c.positions = Positions::kRotary;
     }},
    {"RotaryAfter",
     [](ModelConfig& c) {
       c.positions = Positions::kRotary;
       c.rotary_place = RotaryPlace::kAfter;
     }},
    {"Relu",
     [](ModelConfig& c) { SetKey(c, "feature_map", FeatureMap::kRelu); }},
    {"Relu2NoFinalNorm",
     [](ModelConfig& c) {
       SetKey(c, "feature_map", FeatureMap::kRelu2);
       c.final_norm = false;
     }},
    {"Poly2Signed",
     [](ModelConfig& c) {
       SetKey(c, "feature_map", FeatureMap::kPoly2);
       SetKey(c, "denominator", Denominator::kSigned);
     }},
    {"RmsSwiglu", [](ModelConfig& c) { SetRmsSwiglu(c); }},
    {"LinearFullRmsSwigluPost",
     [](ModelConfig& c) {
       SetLayers(c, "linear,full");
       SetRmsSwiglu(c);
       c.norm = Norm::kPost;
     }},
    {"AftSimple", SetAftSimple},
    {"LinearAftSimpleRmsSwiglu",
     [](ModelConfig& c) {
       SetLayers(c, "linear,aft-simple");
       SetRmsSwiglu(c);
     }},
    {"FullRelu2RotaryAfter",
     [](ModelConfig& c) {
       c.n_layers = 3;
       SetLayers(c, "full,linear:feature_map=relu2");
       c.positions = Positions::kRotary;
       c.rotary_place = RotaryPlace::kAfter;
     }},
};

class ClassifyTest : public ::testing::TestWithParam<ConfigVariant> {
 protected:
  ClassifyTest() : config_(SmallConfigOf(Arch::kEncoder)) {
    GetParam().change(config_);
    FinishConfig(config_);
    tensors_ = RandomTensors(config_, 1);
    WriteModel(folder_.path(), config_, tensors_);
  }
  Model Open(int threads) {
    return Model::Open(folder_.path(), {.threads = threads}).Take();
  }
  TemporaryFolder folder_;
  ModelConfig config_;
  Tensors tensors_;
};

TEST_P(ClassifyTest, MatchesTheReference) {
  const Model model = Open(1);
  ASSERT_EQ(5u, model.labels().size());
  EXPECT_EQ("class 3", model.labels()[3]);
  EXPECT_EQ(0, model.state_bytes());
  for (const int64_t length : {1, 2, 33, 150}) {
    const auto tokens = RandomTokens(config_, length, 2);
    const auto want = ReferenceModel(config_, tensors_).ClassLogits(tokens);
    std::vector<float> got(5, NAN);
    model.Classify(tokens, got.data());
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_NEAR(want[i], got[i], 2e-5 * (1 + std::fabs(want[i])))
          << "length " << length << " class " << i;
    }
  }
}

TEST_P(ClassifyTest, AnyBatchAndThreadCountGiveTheSameBits) {
  std::vector<std::vector<int32_t>> texts;
  std::vector<std::span<const int32_t>> sequences;
  for (uint64_t i = 0; i < 40; ++i) {  // more rows than share a pass
    texts.push_back(
        RandomTokens(config_, 1 + static_cast<int64_t>(i * i % 97), i));
  }
  for (const auto& text : texts) sequences.push_back(text);
  const Model one = Open(1);
  std::vector<float> alone(5 * texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    one.Classify(texts[i], alone.data() + 5 * i);
  }
  for (const int threads : {1, 2, 3}) {
    const Model model = Open(threads);
    std::vector<float> batch(alone.size());
    model.ClassifyBatch(sequences, batch.data());
    EXPECT_EQ(alone, batch) << threads << " threads";
  }
}

TEST_P(ClassifyTest, CanBeStopped) {
  const Model model = Open(2);
  const std::vector<int32_t> tokens = {1, 2, 3};
  std::vector<float> logits(model.labels().size()), again(logits.size());
  model.Classify(tokens, logits.data());
  const std::vector<std::span<const int32_t>> one = {tokens};
  try {
    model.ClassifyBatch(one, again.data(), [] { return true; });
    ADD_FAILURE() << "not stopped";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInterrupted);
  }
  model.ClassifyBatch(one, again.data(), [] { return false; });
  EXPECT_EQ(logits, again);
}

INSTANTIATE_TEST_SUITE_P(Variants, ClassifyTest, ::testing::ValuesIn(kVariants),
                         [](const auto& info) { return info.param.name; });

TEST(Classify, WrongUseIsNamed) {
  const TemporaryFolder folder;
  const ModelConfig config = SmallConfigOf(Arch::kEncoder);
  WriteModel(folder.path(), config, RandomTensors(config, 1));
  const Model model = Model::Open(folder.path()).Take();
  float logits[5];
  const std::vector<int32_t> bad = {0, -1}, good = {1};
  EXPECT_TRUE(Contains(ErrorOf([&] { model.Classify({}, logits); }).what(),
                       "at least one"));
  EXPECT_TRUE(Contains(ErrorOf([&] { model.Classify(bad, logits); }).what(),
                       "tokens[1]"));
  EXPECT_TRUE(Contains(ErrorOf([&] { model.Classify(good, nullptr); }).what(),
                       "logits"));
  EXPECT_TRUE(
      Contains(ErrorOf([&] { State state(model); }).what(), "a classifier"));
  EXPECT_TRUE(
      Contains(ErrorOf([&] { model.Encode(good); }).what(), "arch 'encoder'"));
}

TEST(Classify, LabelsAreReadStrictly) {
  EXPECT_EQ((std::vector<std::string>{"no", "yes"}),
            LabelsFromJson("[\"no\", \"yes\"]", 2).Take());
  const struct {
    const char* json;
    const char* part;
  } cases[] = {
      {"[\"a\"]", "one of 1"},
      {"[\"a\",\"b\",\"c\"]", "one of 3"},
      {"{\"a\":0}", "an object"},
      {"[\"a\",1]", "[1]"},
      {"[\"a\",\"a\"]", "again"},
      {"[\"a\",\"\"]", "[1]"},
      {"[\"a\",\"b\\n\"]", "line ends"},
      {"[\"a\\tb\",\"c\"]", "[0]"},
      {"[\"a\",\"b\"] ]", "labels.json"},
      {"", "labels.json"},
      {"[\"a\",\"\xff\"]", "labels.json"},
  };
  for (const auto& c : cases) {
    const auto labels = LabelsFromJson(c.json, 2);
    ASSERT_FALSE(labels.ok()) << c.json;
    EXPECT_EQ(ErrorCode::kFormat, labels.error().code()) << c.json;
    EXPECT_TRUE(Contains(labels.error().what(), c.part))
        << c.json << " " << labels.error().what();
  }
}

// The blank is first, is empty, and is the only empty one.
TEST(Classify, LabelsOfFramesBeginWithTheBlank) {
  EXPECT_EQ((std::vector<std::string>{"", "a"}),
            LabelsFromJson("[\"\", \"a\"]", 2, true).Take());
  const struct {
    const char* json;
    const char* part;
  } cases[] = {{"[\"a\",\"b\"]", "[0]: want \"\" (the blank)"},
               {"[\"a\",\"\"]", "[0]"},
               {"[\" \",\"a\"]", "[0]"},
               {"[null,\"a\"]", "[0]"},
               {"[\"\",\"\"]", "[1]"},
               {"[\"\",7]", "[1]"},
               {"[\"\"]", "one of 1"},
               {"[\"\",\"a\",\"b\"]", "one of 3"}};
  for (const auto& c : cases) {
    const auto labels = LabelsFromJson(c.json, 2, true);
    ASSERT_FALSE(labels.ok()) << c.json;
    EXPECT_EQ(ErrorCode::kFormat, labels.error().code()) << c.json;
    EXPECT_TRUE(Contains(labels.error().what(), c.part))
        << c.json << " " << labels.error().what();
  }
}

TEST(Classify, AModelWithoutLabelsIsRefused) {
  const TemporaryFolder folder;
  const ModelConfig config = SmallConfigOf(Arch::kEncoder);
  WriteModel(folder.path(), config, RandomTensors(config, 1));
  WriteFileAtomically(folder / "labels.json", LabelsJson(4));
  const auto four = Model::Open(folder.path());
  ASSERT_FALSE(four.ok());
  EXPECT_EQ(ErrorCode::kFormat, four.error().code());
  EXPECT_TRUE(Contains(four.error().what(), folder / "labels.json"));
  std::filesystem::remove(folder / "labels.json");
  const auto none = Model::Open(folder.path());
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(ErrorCode::kIo, none.error().code());
}

}  // namespace
}  // namespace tarn::testing
