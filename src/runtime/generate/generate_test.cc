// The loop against draws and steps by hand; prompts of every kind; where it
// stops and continues; what it refuses.
#include "runtime/generate/generate.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "reference/random_model.h"
#include "runtime/generate/target.h"

namespace tarn {
namespace {

GenerateOptions Options(int64_t max_tokens) {
  GenerateOptions options;
  options.sampler.seed = 11;
  options.max_tokens = max_tokens;
  return options;
}

// One directory per test, removed with it.
class Generating : public testing::TestWithParam<AttentionKind> {
 protected:
  Generating()
      : dir_(std::filesystem::path(testing::TempDir()) /
             ("tarn_generate_" + std::to_string(getpid()))) {}
  ~Generating() override { std::filesystem::remove_all(dir_); }

  Model Open(const ModelConfig& config, const Tokenizer& tokenizer) {
    WriteRandomModel(dir_, config, tokenizer, 1);
    return Model::Open(dir_).Take();
  }
  Model OpenBytes() {
    ModelConfig config = TinyConfig(GetParam());
    config.max_positions = 4096;  // for long prompts
    return Open(config, Tokenizer::Byte());
  }

  const std::filesystem::path dir_;
  const std::vector<int32_t> prompt_{104, 105};
};
INSTANTIATE_TEST_SUITE_P(
    Kinds, Generating, testing::Values(MixerKind("linear"), MixerKind("full")),
    [](const auto& info) { return std::string(Name(info.param)); });

// Tokens of a whole run.
std::vector<int32_t> Written(const Model& model, const Tokenizer& tokenizer,
                             State& state, std::span<const int32_t> prompt,
                             const GenerateOptions& options) {
  std::vector<int32_t> tokens;
  std::string text;
  const GenerateResult result =
      Generate(model, tokenizer, state, prompt, options,
               [&](const GeneratedToken& token) {
                 tokens.push_back(token.id);
                 text += token.text;
                 return true;
               });
  EXPECT_EQ(result.tokens, static_cast<int64_t>(tokens.size()));
  EXPECT_EQ(text, tokenizer.Decode(tokens));
  EXPECT_FALSE(result.stopped);
  return tokens;
}

TEST_P(Generating, IsDrawsAndStepsByHand) {
  const Model model = OpenBytes();
  State state(model), by_hand(model);
  const auto got =
      Written(model, Tokenizer::Byte(), state, prompt_, Options(40));
  std::vector<float> logits(256);
  std::vector<int32_t> want;
  model.Prefill(by_hand, prompt_, logits.data());
  while (want.size() < 40) {
    want.push_back(Sample(logits, Options(0).sampler,
                          static_cast<uint64_t>(by_hand.position())));
    model.Step(by_hand, want.back(), logits.data());
  }
  EXPECT_EQ(got, want);
  EXPECT_TRUE(state == by_hand);
}

// Penalties, DRY and Mirostat need what was before: the prompt, the tokens
// drawn, and for a text in parts the history and the sampler's state.
TEST_P(Generating, HistoryAndStateReachTheSampler) {
  const Model model = OpenBytes();
  const Tokenizer bytes = Tokenizer::Byte();
  GenerateOptions options = Options(30);
  options.sampler.repeat_penalty = 1.7;
  options.sampler.repeat_last_n = 20;
  options.sampler.dry_multiplier = 2;
  options.sampler.mirostat = 2;
  State whole(model), by_hand(model), parts(model);
  const auto want = Written(model, bytes, whole, prompt_, options);
  const Sampler sampler(options.sampler, bytes);
  SamplerState state = sampler.Start();
  std::vector<int32_t> history(prompt_.begin(), prompt_.end());
  std::vector<float> logits(256);
  model.Prefill(by_hand, prompt_, logits.data());
  for (const int32_t token : want) {
    ASSERT_EQ(
        sampler.Draw({.logits = logits,
                      .tokens = history,
                      .position = static_cast<uint64_t>(by_hand.position())},
                     state),
        token);
    history.push_back(token);
    model.Step(by_hand, token, logits.data());
  }
  options.max_tokens = 11;
  std::vector<int32_t> got;
  const auto keep = [&](const GeneratedToken& token) {
    got.push_back(token.id);
    return true;
  };
  const GenerateResult first =
      Generate(model, bytes, parts, prompt_, options, keep);
  options.max_tokens = 19;
  options.history.assign(prompt_.begin(), prompt_.end());
  options.history.insert(options.history.end(), got.begin(), got.end());
  options.sampler_state = first.sampler_state;
  Generate(model, bytes, parts, {}, options, keep);
  EXPECT_EQ(got, want);
}

TEST_P(Generating, StoppedAnywhereItContinuesAsOneRun) {
  const Model model = OpenBytes();
  const Tokenizer bytes = Tokenizer::Byte();
  State whole(model), parts(model);
  const auto want = Written(model, bytes, whole, prompt_, Options(20));
  std::vector<int32_t> got;
  const GenerateResult result =
      Generate(model, bytes, parts, prompt_, Options(20),
               [&](const GeneratedToken& token) {
                 got.push_back(token.id);
                 return got.size() < 7;
               });
  EXPECT_EQ(result.tokens, 7);
  EXPECT_FALSE(result.stopped);
  EXPECT_EQ(parts.position(), 9);
  Generation rest(model, bytes, parts, Options(13));
  EXPECT_TRUE(rest.Prompt({}));
  while (const auto token = rest.Next()) got.push_back(*token);
  EXPECT_EQ(got, want);
  EXPECT_TRUE(parts == whole);
}

// A stop text ends the text before itself and changes nothing up to it; its
// tokens are consumed. A stop token is not.
TEST_P(Generating, EndsAtStopTextsAndStopTokens) {
  const Model model = OpenBytes();
  const Tokenizer bytes = Tokenizer::Byte();
  State whole(model), by_hand(model), stopped(model);
  const auto want = Written(model, bytes, whole, prompt_, Options(60));
  const std::string text = bytes.Decode(want);
  const std::string stop = text.substr(30, 3);
  const size_t at = text.find(stop);
  GenerateOptions options = Options(60);
  options.stop_texts = {"never in it, as it is too long", stop};
  std::string told;
  const auto tell = [&](const GeneratedToken& token) {
    told += token.text;
    return true;
  };
  GenerateResult result =
      Generate(model, bytes, stopped, prompt_, options, tell);
  EXPECT_EQ(text.substr(0, at), told);
  EXPECT_EQ(SequenceEnd::kStopText, result.end);
  EXPECT_EQ("", result.held);
  EXPECT_EQ(static_cast<int64_t>(at + 3), result.tokens);
  model.Prefill(by_hand, prompt_);
  std::vector<float> logits(256);
  model.Prefill(by_hand, std::span<const int32_t>(want).first(at + 3),
                logits.data());
  EXPECT_TRUE(stopped == by_hand);
  // The same byte as a stop token.
  const int32_t token = want[30];
  const size_t first = static_cast<size_t>(
      std::find(want.begin(), want.end(), token) - want.begin());
  options = Options(60);
  options.stop_tokens = {token};
  stopped.Reset();
  told.clear();
  result = Generate(model, bytes, stopped, prompt_, options, tell);
  EXPECT_EQ(text.substr(0, first), told);
  EXPECT_EQ(SequenceEnd::kStopToken, result.end);
  EXPECT_EQ(static_cast<int64_t>(2 + first), stopped.position());
  // A text that its caller ends leaves what is held back.
  options = Options(60);
  options.stop_texts = {text.substr(10, 2) + "\x01 never"};
  stopped.Reset();
  told.clear();
  result = Generate(model, bytes, stopped, prompt_, options,
                    [&](const GeneratedToken& token) {
                      told += token.text;
                      return stopped.position() < 2 + 12;
                    });
  EXPECT_EQ(SequenceEnd::kNone, result.end);
  EXPECT_EQ(text.substr(0, 12), told + result.held);
  EXPECT_EQ(text.substr(10, 2), result.held);
}

TEST_P(Generating, PromptsOfEveryLength) {
  const Model model = OpenBytes();
  const Tokenizer bytes = Tokenizer::Byte();
  const std::vector<int32_t> newline{'\n'}, none;
  State a(model), b(model);
  EXPECT_EQ(Written(model, bytes, a, none, Options(9)),
            Written(model, bytes, b, newline, Options(9)));
  EXPECT_TRUE(a == b);
  // Blocks of a long prompt give the state of one call.
  const std::vector<int32_t> many(2500, 'x');
  a.Reset();
  b.Reset();
  EXPECT_TRUE(Written(model, bytes, a, many, Options(0)).empty());
  std::vector<float> logits(256);
  model.Prefill(b, many, logits.data());
  EXPECT_TRUE(a == b);
}

TEST_P(Generating, IsStoppedInThePromptAndBetweenTokens) {
  const Model model = OpenBytes();
  const Tokenizer bytes = Tokenizer::Byte();
  const std::vector<int32_t> many(3000, 'x');
  int told = 0;
  const TokenSink count = [&](const GeneratedToken&) { return ++told > 0; };
  State state(model);
  GenerateResult result =
      Generate(model, bytes, state, many, Options(5), count,
               [&] { return state.position() >= 2048 + 256; });
  EXPECT_TRUE(result.stopped);
  EXPECT_EQ(told, 0);
  EXPECT_EQ(state.position(), 2048);
  state.Reset();
  result = Generate(model, bytes, state, prompt_, Options(5), count,
                    [&] { return told == 2; });
  EXPECT_TRUE(result.stopped);
  EXPECT_EQ(result.tokens, 2);
  EXPECT_EQ(state.position(), 4);
}

TEST_P(Generating, RowsWithoutTextAreNeverDrawn) {
  ModelConfig config = TinyConfig(GetParam());
  config.vocab_size = 50;
  config.tokenizer = TokenizerKind::kChar;
  const Tokenizer chars = Tokenizer::Char({'a', 'b'});
  const Model model = Open(config, chars);
  EXPECT_EQ(NewlineToken(chars), std::nullopt);
  GenerateOptions options = Options(200);
  options.sampler.temperature = 100;
  options.sampler.top_k = 0;
  State state(model), from_zero(model);
  const auto tokens = Written(model, chars, state, {}, options);
  for (const int32_t token : tokens) EXPECT_LT(token, 2);
  const std::vector<int32_t> zero{0};  // what stands in for the newline
  EXPECT_EQ(Written(model, chars, from_zero, zero, options), tokens);
}

// The message of the call's error; the call must have changed nothing.
template <typename Call>
std::string Refusal(const State& state, const Call& call) {
  const State before = state.Clone();
  std::string message = "nothing was thrown";
  try {
    call();
  } catch (const ArgumentError& error) {
    message = error.what();
  }
  EXPECT_TRUE(state == before);
  return message;
}

TEST_P(Generating, RefusesBeforeAnyWork) {
  const Model model = OpenBytes();
  const Tokenizer bytes = Tokenizer::Byte();
  State state(model);
  std::vector<int32_t> bad(2000, 'x');
  bad.back() = 256;
  const auto run = [&](std::span<const int32_t> prompt,
                       const GenerateOptions& options) {
    return Refusal(state,
                   [&] { Generate(model, bytes, state, prompt, options, {}); });
  };
  EXPECT_EQ(run(bad, Options(1)),
            "generate: prompt token 1999: want 0 to 255, got 256");
  EXPECT_EQ(run(prompt_, Options(-1)), "max_tokens: want 0 or more, got -1");
  GenerateOptions options = Options(1);
  options.sampler.top_p = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(run(prompt_, options).find("top_p"), 0u);
  model.Prefill(state, prompt_);  // asks for no logits
  EXPECT_EQ(run({}, Options(1)).find("generate: state"), 0u);
  EXPECT_NE(Written(model, bytes, state, prompt_, Options(3)).size(), 0u);
}

TEST_P(Generating, RefusesModelsOfImages) {
  const Model model = Open(TinyImageConfig(GetParam()), Tokenizer::Byte());
  State state(model);
  EXPECT_EQ(Refusal(state,
                    [&] {
                      Generate(model, Tokenizer::Byte(), state, prompt_,
                               Options(1), {});
                    }),
            "generate: model: want a model that writes text, got an image "
            "model");
}

TEST(Targets, BeginAndEndWithTheNewline) {
  BeamOptions given;
  given.beam = 3;
  const BeamOptions beam = TargetBeam(Tokenizer::Byte(), given);
  EXPECT_EQ(beam.start, 10);
  EXPECT_EQ(beam.end, 10);
  EXPECT_EQ(beam.candidates, 256);
  EXPECT_EQ(beam.beam, 3);
  EXPECT_THROW(TargetBeam(Tokenizer::Char({'a'}), given), FormatError);
}

}  // namespace
}  // namespace tarn
