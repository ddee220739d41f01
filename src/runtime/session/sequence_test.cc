// A sequence driven by hand, without a model: logits that leave one choice.
#include "runtime/session/sequence.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "core/error.h"

namespace tarn {
namespace {

using Tokens = std::vector<int32_t>;

// Logits of which only this token can be drawn.
std::vector<float> Only(int32_t token, size_t rows = 256) {
  std::vector<float> logits(rows, 0.0f);
  logits[static_cast<size_t>(token)] = 100.0f;
  return logits;
}

SequenceOptions Greedy() {
  SequenceOptions options;
  options.sampler.temperature = 0;
  return options;
}

// Draws the bytes of `text` one after the other until the sequence ends;
// returns what is told.
std::string Told(Sequence& sequence, std::string_view text) {
  std::string told;
  for (const char byte : text) {
    if (sequence.ended()) break;
    const auto token = static_cast<int32_t>(static_cast<uint8_t>(byte));
    EXPECT_EQ(token, sequence.Draw(Only(token), 0));
    told += sequence.text();
    sequence.Consumed(sequence.pending().size());
  }
  return told;
}

TEST(Sequence, WaitsForItsPromptThenForEachDrawnToken) {
  const Tokenizer bytes = Tokenizer::Byte();
  Sequence sequence(bytes, Greedy());
  EXPECT_TRUE(sequence.ended());  // not begun
  const Tokens prompt{5, 6, 7};
  sequence.Begin(prompt, 2);
  EXPECT_FALSE(sequence.ended());
  EXPECT_EQ(3u, sequence.pending().size());
  EXPECT_THROW(sequence.Draw(Only(65), 3), ArgumentError);
  sequence.Consumed(2);
  ASSERT_EQ(1u, sequence.pending().size());
  EXPECT_EQ(7, sequence.pending()[0]);
  EXPECT_THROW(sequence.Consumed(2), ArgumentError);
  sequence.Consumed(1);
  EXPECT_EQ(65, sequence.Draw(Only(65), 3));
  EXPECT_EQ("A", sequence.text());
  ASSERT_EQ(1u, sequence.pending().size());
  EXPECT_EQ(65, sequence.pending()[0]);
  EXPECT_THROW(sequence.Draw(Only(66), 4), ArgumentError);
  sequence.Consumed(1);
  EXPECT_FALSE(sequence.ended());
  sequence.Draw(Only(66), 4);
  // The last token is still to be consumed when the text has ended.
  EXPECT_EQ(SequenceEnd::kBudget, sequence.end());
  EXPECT_EQ(1u, sequence.pending().size());
  EXPECT_EQ(2, sequence.tokens());
  sequence.Consumed(1);
  EXPECT_THROW(sequence.Draw(Only(66), 5), ArgumentError);
}

TEST(Sequence, DrawsAsTheSamplerDoes) {
  const Tokenizer bytes = Tokenizer::Byte();
  SequenceOptions options;
  options.sampler.seed = 3;
  options.sampler.stream = 1;
  Sequence sequence(bytes, options);
  std::vector<float> logits(300);  // rows beyond the table are never drawn
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = static_cast<float>(i % 17);
  }
  for (uint64_t position = 0; position < 50; ++position) {
    sequence.Begin({}, 1);
    EXPECT_EQ(Sample(std::span<const float>(logits).first(256), options.sampler,
                     position),
              sequence.Draw(logits, position));
  }
}

TEST(Sequence, PenaltiesLookAtTheHistory) {
  const Tokenizer bytes = Tokenizer::Byte();
  SequenceOptions options = Greedy();
  options.sampler.presence_penalty = 2;
  Sequence sequence(bytes, options);
  std::vector<float> logits(256, 0.0f);
  logits[7] = 3;
  logits[9] = 2;
  const Tokens history{7, 8};
  sequence.Begin({}, 1);
  EXPECT_EQ(7, sequence.Draw(logits, 0));
  sequence.Begin({}, 1);
  EXPECT_EQ(9, sequence.Draw(logits, 0, history));
}

TEST(Sequence, AConstraintLimitsWhatIsDrawnAndEndsTheText) {
  const Tokenizer bytes = Tokenizer::Byte();
  SequenceOptions options = Greedy();
  options.constraint =
      Constraint::Make(GrammarKind::kRegex, "b[a-c]", bytes, {}).Take();
  Sequence sequence(bytes, options);
  sequence.Begin({}, 10);
  std::vector<float> logits = Only('z');
  logits['c'] = 1;
  EXPECT_EQ('b', sequence.Draw(logits, 0));
  sequence.Consumed(1);
  EXPECT_EQ('c', sequence.Draw(logits, 1));
  sequence.Consumed(1);
  EXPECT_FALSE(sequence.ended());
  EXPECT_EQ(-1, sequence.Draw(logits, 2));
  EXPECT_EQ(SequenceEnd::kGrammar, sequence.end());
  EXPECT_TRUE(sequence.pending().empty());
  sequence.Restart();
  EXPECT_THROW(sequence.Accept('z'), ArgumentError);
  sequence.Accept('b');
  sequence.Consumed(1);
  EXPECT_EQ('c', sequence.Draw(logits, 1));
  // With a stop token it is what ends the text.
  options.stop_tokens = {'!'};
  options.constraint =
      Constraint::Make(GrammarKind::kRegex, "b", bytes, options.stop_tokens)
          .Take();
  Sequence stopped(bytes, options);
  stopped.Begin({}, 10);
  EXPECT_EQ('b', stopped.Draw(Only('!'), 0));
  stopped.Consumed(1);
  EXPECT_EQ('!', stopped.Draw(logits, 1));
  EXPECT_EQ(SequenceEnd::kStopToken, stopped.end());
}

TEST(Sequence, TheSamplersStateGoesFromDrawToDraw) {
  const Tokenizer bytes = Tokenizer::Byte();
  SequenceOptions options;
  options.sampler.mirostat = 2;
  const Sampler sampler(options.sampler);
  SamplerState state = sampler.Start();
  Sequence sequence(bytes, options);
  std::vector<float> logits(256);
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = static_cast<float>(i % 13);
  }
  for (uint64_t position = 0; position < 30; ++position) {
    sequence.Begin({}, 1);
    EXPECT_EQ(sampler.Draw({.logits = logits, .position = position}, state),
              sequence.Draw(logits, position));
    EXPECT_EQ(state, sequence.sampler_state());
  }
  EXPECT_NE(state, sampler.Start());
}

TEST(Sequence, NothingToWrite) {
  const Tokenizer bytes = Tokenizer::Byte();
  Sequence sequence(bytes, Greedy());
  sequence.Begin(Tokens{1}, 0);
  EXPECT_EQ(SequenceEnd::kBudget, sequence.end());
  EXPECT_EQ(1u, sequence.pending().size());  // the prompt is consumed anyway
  EXPECT_THROW(sequence.Begin({}, -1), ArgumentError);
}

TEST(Sequence, AStopTokenEndsTheTextAndIsNotPartOfIt) {
  const Tokenizer bytes = Tokenizer::Byte();
  SequenceOptions options = Greedy();
  options.stop_tokens = {'z', 0};
  options.stop_texts = {"zip", "cap"};
  Sequence sequence(bytes, options);
  sequence.Begin({}, 100);
  EXPECT_EQ("abca", Told(sequence, "abcaz"));  // "ca" was held back
  EXPECT_EQ(SequenceEnd::kStopToken, sequence.end());
  EXPECT_TRUE(sequence.pending().empty());
  EXPECT_EQ(4, sequence.tokens());
}

TEST(Sequence, AStopTextEndsTheTextAcrossTokens) {
  const Tokenizer bytes = Tokenizer::Byte();
  SequenceOptions options = Greedy();
  options.stop_texts = {"\nUser:"};
  Sequence sequence(bytes, options);
  sequence.Begin({}, 100);
  EXPECT_EQ("one\ntwo\nUs", Told(sequence, "one\ntwo\nUs\nUser: more"));
  EXPECT_EQ(SequenceEnd::kStopText, sequence.end());
  EXPECT_EQ(16, sequence.tokens());  // those of the stop text, too
  EXPECT_EQ("", sequence.TakeHeld());
}

TEST(Sequence, TheLastTokenReleasesWhatIsHeldBack) {
  const Tokenizer bytes = Tokenizer::Byte();
  SequenceOptions options = Greedy();
  options.stop_texts = {"stop"};
  Sequence sequence(bytes, options);
  sequence.Begin({}, 6);
  EXPECT_EQ("do sto", Told(sequence, "do stop"));
  EXPECT_EQ(SequenceEnd::kBudget, sequence.end());
  // A stop text that the last token completes ends the text.
  sequence.Begin({}, 7);
  EXPECT_EQ("do ", Told(sequence, "do stop"));
  EXPECT_EQ(SequenceEnd::kStopText, sequence.end());
  // Ended from outside: what is held back is the caller's.
  sequence.Begin({}, 100);
  EXPECT_EQ("do ", Told(sequence, "do st"));
  EXPECT_EQ("st", sequence.TakeHeld());
  EXPECT_EQ("op!", Told(sequence, "op!"));
}

// Tokens of several bytes, whose borders are not those of the stop text.
TEST(Sequence, TokensOfManyBytes) {
  const Tokenizer ids = Tokenizer::Ids(100);  // " 7", " 42", ...
  SequenceOptions options = Greedy();
  options.stop_texts = {"2 3"};
  Sequence sequence(ids, options);
  sequence.Begin({}, 100);
  std::string told;
  for (const int32_t token : {42, 12, 35, 9}) {
    if (sequence.ended()) break;
    sequence.Draw(Only(token, 100), 0);
    told += sequence.text();
    sequence.Consumed(1);
  }
  EXPECT_EQ(" 42 1", told);
  EXPECT_EQ(3, sequence.tokens());
}

TEST(Sequence, RefusesBeforeAnyWork) {
  const Tokenizer bytes = Tokenizer::Byte();
  const auto made = [&](const auto& change) {
    SequenceOptions options = Greedy();
    change(options);
    return Sequence(bytes, options);
  };
  EXPECT_THROW(made([](auto& o) { o.stop_tokens = {256}; }), ArgumentError);
  EXPECT_THROW(made([](auto& o) { o.stop_tokens = {-1}; }), ArgumentError);
  EXPECT_THROW(made([](auto& o) { o.stop_texts = {""}; }), ArgumentError);
  EXPECT_THROW(made([](auto& o) { o.sampler.top_p = 2; }), ArgumentError);
  // NaN among the logits changes nothing.
  Sequence sequence(bytes, Greedy());
  sequence.Begin({}, 5);
  std::vector<float> logits(256, std::numeric_limits<float>::quiet_NaN());
  EXPECT_THROW(sequence.Draw(logits, 0), NumericError);
  EXPECT_EQ("hi", Told(sequence, "hi"));
  EXPECT_EQ(2, sequence.tokens());
}

}  // namespace
}  // namespace tarn
