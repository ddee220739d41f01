// The C++ owner (tarn.hpp) as a program outside the tree would use it: this
// file includes no internal header, whose names in namespace tarn it shares.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "capi/test_models.h"
#include "tarn/tarn.hpp"

namespace {

// Model directories of this process, removed at its end.
class Owner : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    root_ = std::filesystem::path(testing::TempDir()) /
            ("tarn_owner_" + std::to_string(getpid()));
    tarn_test::WriteModels(root_);
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(root_); }
  static std::string Path(const std::string& name) { return root_ / name; }

  static inline std::filesystem::path root_;
};

// The message of the Error that the call throws.
template <typename Call>
std::string MessageOf(const Call& call) {
  try {
    call();
  } catch (const tarn::Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST_F(Owner, DrawsWhatTheModelSays) {
  const tarn::Model model = tarn::Model::Open(Path("char"));
  tarn::State state(model);
  EXPECT_THROW(state.Sample(), tarn::Error);
  state.Prefill(model.Encode("abba"));
  tarn::State fork = state.Clone();
  EXPECT_TRUE(fork == state);
  EXPECT_EQ(fork.Hash(), state.Hash());
  std::string text;
  for (int i = 0; i < 50; ++i) {
    const int32_t token = state.Sample({.seed = 5});
    ASSERT_EQ(token, fork.Sample({.seed = 5}));
    ASSERT_LT(token, 3);  // rows without a character are not candidates
    text += model.Decode(token);
    state.Step(token);
    fork.Step(token);
  }
  EXPECT_TRUE(fork == state);
  EXPECT_EQ(state.position(), 54u);
  EXPECT_EQ(model.Decode(model.Encode(text)), text);
  EXPECT_EQ(state.last_logits().size(), 5u);
  fork = std::move(state);
  fork.Reset();
  EXPECT_EQ(fork.position(), 0u);
}

TEST_F(Owner, AllOptionsOfSamplingReachTheLibrary) {
  const tarn::Model model = tarn::Model::Open(Path("linear"));
  EXPECT_EQ(model.sampler().repeat_last_n, 64);
  tarn::State state(model);
  state.Prefill({1, 2, 3});
  tarn::SamplerOptions options;
  options.logit_bias = {{7, 100.0f}};
  EXPECT_EQ(state.Sample(options), 7);
  options.samplers = "temperature";
  options.mirostat_tau = -1;
  EXPECT_THROW(state.Sample(options), tarn::Error);
  // Each token at most once.
  tarn::GenerateOptions once{20, {}};
  once.sampler.presence_penalty = 2;
  once.sampler.repeat_penalty = 10;
  once.sampler.frequency_penalty = 2;
  once.sampler.temperature = 0;
  once.sampler.dry_sequence_breakers = std::vector<std::string>{};
  const std::string text = model.Generate("a", once);
  once.sampler = {};
  once.sampler.temperature = 0;
  EXPECT_NE(text, model.Generate("a", once));
}

TEST_F(Owner, GeneratesWhatItDraws) {
  for (const char* name : {"linear", "full", "char", "ids"}) {
    const tarn::Model model = tarn::Model::Open(Path(name));
    const std::string prompt = std::string(name) == "ids" ? "1 2" : "ab";
    tarn::State by_hand(model), state(model);
    by_hand.Prefill(model.Encode(prompt));
    std::string want;
    for (int i = 0; i < 30; ++i) {
      const int32_t token = by_hand.Sample({.seed = 9});
      want += model.Decode(token);
      by_hand.Step(token);
    }
    const tarn::GenerateOptions options{30, {.seed = 9}};
    EXPECT_EQ(model.Generate(prompt, options), want);
    std::string told;
    EXPECT_EQ(state.Generate(model.Encode(prompt), options,
                             [&](std::string_view text) {
                               told += text;
                               return true;
                             }),
              30u);
    EXPECT_EQ(told, want);
    EXPECT_TRUE(state == by_hand);
  }
}

TEST_F(Owner, StopsAtTextsAndTokens) {
  const tarn::Model model = tarn::Model::Open(Path("linear"));
  tarn::GenerateOptions options{30, {.seed = 9}};
  const std::string text = model.Generate("ab", options);
  options.stop = {"never written", text.substr(12, 2)};
  EXPECT_EQ(model.Generate("ab", options),
            text.substr(0, text.find(text.substr(12, 2))));
  options.stop = {};
  options.stop_tokens = {static_cast<unsigned char>(text[9])};
  EXPECT_EQ(model.Generate("ab", options), text.substr(0, text.find(text[9])));
}

TEST_F(Owner, ASinkEndsOrThrows) {
  const tarn::Model model = tarn::Model::Open(Path("linear"));
  tarn::State state(model);
  int told = 0;
  EXPECT_EQ(
      state.Generate({'a'}, {}, [&](std::string_view) { return ++told < 3; }),
      3u);
  EXPECT_EQ(state.position(), 4u);
  struct Own {};
  EXPECT_THROW(
      state.Generate({}, {}, [](std::string_view) -> bool { throw Own(); }),
      Own);
  EXPECT_EQ(state.position(), 5u);
  EXPECT_NE(MessageOf([&] { state.Generate({300}); }).find("300"),
            std::string::npos);
  const tarn::Model image = tarn::Model::Open(Path("image"));
  EXPECT_NE(MessageOf([&] { image.Generate("a"); }).find("an image model"),
            std::string::npos);
}

TEST_F(Owner, TokensOfAnyLengthAreDecoded) {
  const tarn::Model model = tarn::Model::Open(Path("ids"));
  EXPECT_EQ(model.Decode(12345), " 12345");
  EXPECT_EQ(model.Decode({19999, 0, 19999}), " 19999 0 19999");
  EXPECT_EQ(model.Decode(std::vector<int32_t>{}), "");
  EXPECT_EQ(model.Encode("19999 7"), (std::vector<int32_t>{19999, 7}));
  EXPECT_EQ(model.EncodePrompt("7 8"), (std::vector<int32_t>{7, 8}));
  tarn::Decoder decoder(model);
  EXPECT_EQ(decoder.Next(5) + decoder.Next(19999), " 5 19999");
  EXPECT_EQ(model.sampler().top_k, 40);
}

TEST_F(Owner, TextThatNormalisingLengthensIsEncoded) {
  // NFC takes U+0958 apart: 3 bytes become 6, and here each is a token.
  const tarn::Model model = tarn::Model::Open(Path("nfc"));
  EXPECT_EQ(model.Encode("\xE0\xA5\x98").size(), 6u);
  EXPECT_EQ(model.Decode(model.Encode("\xE0\xA5\x98")),
            "\xE0\xA4\x95\xE0\xA4\xBC");
  EXPECT_TRUE(model.Encode("").empty());
}

TEST_F(Owner, EveryErrorHasItsMessage) {
  try {
    tarn::Model::Open(Path("absent"));
    FAIL();
  } catch (const tarn::Error& error) {
    EXPECT_EQ(error.code(), TARN_ERROR_IO);
    EXPECT_NE(std::string(error.what()).find("config.json"), std::string::npos);
  }
  const tarn::Model model = tarn::Model::Open(Path("char"));
  tarn::State state(model);
  const auto says = [](const std::string& message, const char* part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  says(MessageOf([&] { model.Encode("x"); }), "byte 0");
  says(MessageOf([&] { model.Decode(4); }), "token");
  says(MessageOf([&] { model.Classify({0}); }), "encoder");
  says(MessageOf([&] { state.Step(9); }), "9");
  says(MessageOf([&] { state.Sample(); }), "logits");
  says(MessageOf([&] { state.BeamSearch({.beam = 0}); }), "beam");
  says(MessageOf([&] { state.Save(Path("no/such")); }), "no/such");
  says(MessageOf([&] { tarn::State::Load(model, Path("absent")); }), "absent");
  says(MessageOf([&] { tarn::State::OfSource(model, {0}); }), "seq2seq");
  const tarn::Model encoder = tarn::Model::Open(Path("encoder"));
  says(MessageOf([&] { tarn::State of_classifier(encoder); }), "classifier");
}

TEST_F(Owner, ImageModelsHaveFewerOutputsThanBytes) {
  const tarn::Model model = tarn::Model::Open(Path("image"));
  ASSERT_LT(model.n_outputs(), 256u);
  tarn::State state(model);
  state.Step(1);
  // Nothing beyond the row is read (sanitizers see it).
  EXPECT_LT(state.Sample(), static_cast<int32_t>(model.n_outputs()));
}

TEST_F(Owner, SourcesStatesAndClasses) {
  const std::vector<int32_t> source{116, 97, 114, 110};
  const auto model = tarn::Model::Open(Path("seq2seq"));
  const auto of_source = tarn::State::OfSource(model, source);
  const auto target = of_source.BeamSearch({10, 10, 1, 8, 1.0});
  EXPECT_LE(target.size(), 8u);
  EXPECT_EQ(of_source.position(), 0u);
  of_source.Save(Path("seq2seq.state"));
  const auto loaded = tarn::State::Load(model, Path("seq2seq.state"));
  EXPECT_TRUE(loaded == of_source);
  const std::vector<std::uint8_t> bytes = of_source.Serialize();
  EXPECT_TRUE(tarn::State::Deserialize(model, bytes) == of_source);
  EXPECT_NE(MessageOf([&] {
              tarn::State::Deserialize(tarn::Model::Open(Path("linear")),
                                       bytes);
            }).find("state: model"),
            std::string::npos);
  EXPECT_EQ(loaded.BeamSearch({10, 10, 1, 8, 1.0}), target);
  EXPECT_THROW(model.Classify(source), tarn::Error);

  const auto classifier = tarn::Model::Open(Path("encoder"));
  EXPECT_EQ(classifier.Classify(source).size(), 3u);
  EXPECT_EQ(classifier.labels()[1], "label 1");
  EXPECT_EQ(classifier.arch(), TARN_ARCH_ENCODER);
}

TEST_F(Owner, VectorsOfTexts) {
  const tarn::Model model = tarn::Model::Open(Path("linear"));
  const auto vectors = model.Embed({{1, 2, 3}, {4}});
  ASSERT_EQ(vectors.size(), 2u);
  EXPECT_EQ(vectors[0], model.Embed({{1, 2, 3}})[0]);
  EXPECT_EQ(vectors[1], model.Embed({{4}}, TARN_POOLING_LAST)[0]);
  EXPECT_TRUE(model.Embed({}).empty());
  EXPECT_THROW(model.Embed({{}}), tarn::Error);
}

}  // namespace
