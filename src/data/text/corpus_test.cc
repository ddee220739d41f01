#include "data/text/corpus.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "core/error.h"
#include "core/test_util.h"
#include "text/bpe_train.h"

namespace tarn::train {
namespace {

std::string Sentences(int count, const char* letter) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += std::to_string(i * 31) + letter + std::to_string(i) + "\n%\n";
  }
  return text;
}

// A text with its split, and the two sides as plain strings: the reference.
struct Case {
  explicit Case(const std::string& contents)
      : files({dir.Write("text", contents)}, dir.path()),
        split(SplitRecords(files, RecordMode::kAuto)),
        training(Side(split.training)),
        held_out(Side(split.held_out)) {}
  std::string Side(const std::vector<Slice>& slices) const {
    std::string side;
    for (const Slice& s : slices) side += files.At(s.begin, s.length);
    return side;
  }
  Corpus Make(TokenizerKind kind, int64_t seq_len, int64_t most = 1 << 20) {
    return Corpus(files, split, BuildTokenizer(files, kind), seq_len, most);
  }

  TemporaryFolder dir;
  TextFiles files;
  RecordSplit split;
  std::string training, held_out;
};

constexpr TokenizerKind kKinds[] = {TokenizerKind::kByte, TokenizerKind::kChar};

TEST(CorpusTest, HeldOutWindowsPredictEveryByteAfterTheFirstOnce) {
  Case c(Sentences(500, " \xC3\xA9\xE2\x82\xAC "));
  for (TokenizerKind kind : kKinds) {
    // Lengths that divide the text and that do not, and one beyond it.
    for (int64_t seq_len : {1, 2, 7, 64, 100000}) {
      const Corpus corpus = c.Make(kind, seq_len);
      std::string text;
      int64_t bytes = 0;
      for (int64_t i = 0; i < corpus.held_out_windows(); ++i) {
        const Window window = corpus.HeldOutWindow(i);
        ASSERT_GE(window.tokens.size(), 2u);
        ASSERT_LE(static_cast<int64_t>(window.tokens.size()), seq_len + 1);
        std::vector<int32_t> tokens = window.tokens;
        if (i > 0) tokens.erase(tokens.begin());
        text += corpus.tokenizer().Decode(tokens);
        bytes += window.target_bytes;
      }
      EXPECT_EQ(text, c.held_out) << seq_len;
      EXPECT_TRUE(corpus.covers_held_out());
      EXPECT_EQ(bytes, static_cast<int64_t>(c.held_out.size()) - 1);
    }
  }
}

TEST(CorpusTest, FewerHeldOutWindowsAreEvenlySpaced) {
  Case c(Sentences(2000, " word "));
  const Corpus all = c.Make(TokenizerKind::kByte, 8);
  const Corpus some = c.Make(TokenizerKind::kByte, 8, 10);
  ASSERT_GT(all.held_out_windows(), 40);
  ASSERT_EQ(some.held_out_windows(), 10);
  EXPECT_FALSE(some.covers_held_out());
  for (int64_t i = 0; i < 10; ++i) {
    EXPECT_EQ(some.HeldOutWindow(i).tokens,
              all.HeldOutWindow(i * all.held_out_windows() / 10).tokens);
  }
}

TEST(CorpusTest, TrainingWindowsArePiecesOfTheTrainingTextAsARing) {
  Case c(Sentences(300, " \xC3\xA9 "));
  const std::string ring = c.training + c.training;
  for (TokenizerKind kind : kKinds) {
    const Corpus corpus = c.Make(kind, 50);
    for (int64_t step = 1; step <= 200; ++step) {
      const Window window = corpus.TrainingWindow(7, step, step % 3);
      EXPECT_EQ(window.tokens.size(), 51u);
      const std::string text = corpus.tokenizer().Decode(window.tokens);
      EXPECT_NE(ring.find(text), std::string::npos);
      const std::string first = corpus.tokenizer().Decode({window.tokens[0]});
      EXPECT_EQ(window.target_bytes,
                static_cast<int64_t>(text.size() - first.size()));
    }
  }
}

TEST(CorpusTest, TrainingWindowsDependOnSeedStepAndRowAlone) {
  Case c(Sentences(3000, " x "));
  const Corpus a = c.Make(TokenizerKind::kByte, 64);
  const Corpus b = c.Make(TokenizerKind::kByte, 64);
  const auto base = a.TrainingWindow(1, 2, 3).tokens;
  b.TrainingWindow(9, 9, 9);
  EXPECT_EQ(b.TrainingWindow(1, 2, 3).tokens, base);
  EXPECT_NE(a.TrainingWindow(2, 2, 3).tokens, base);
  EXPECT_NE(a.TrainingWindow(1, 3, 3).tokens, base);
  EXPECT_NE(a.TrainingWindow(1, 2, 4).tokens, base);
  // A longer window is the same text, continued.
  auto longer = a.TrainingWindow(1, 2, 3, 200).tokens;
  ASSERT_EQ(longer.size(), 201u);
  longer.resize(base.size());
  EXPECT_EQ(longer, base);
}

TEST(CorpusTest, WindowsStartAnywhereAlike) {
  // A text of 0..9 in equal shares: first tokens are uniform over digits.
  std::string text;
  for (int i = 0; i < 20000; ++i) text += static_cast<char>('0' + i % 10);
  Case c(text);
  const Corpus corpus = c.Make(TokenizerKind::kByte, 1);
  std::map<int32_t, int> counts;
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) {
    ++counts[corpus.TrainingWindow(3, i, 0).tokens[0]];
  }
  ASSERT_EQ(counts.size(), 10u);
  // Five standard deviations of a binomial (2000, sd 42).
  for (const auto& [token, count] : counts) EXPECT_NEAR(count, 2000, 212);
}

TEST(CorpusTest, TextShorterThanAWindowIsReadRound) {
  Case c("abc\n%\ndef\n%\n");
  const Window window =
      c.Make(TokenizerKind::kByte, 100).TrainingWindow(0, 1, 0);
  EXPECT_EQ(window.tokens.size(), 101u);
}

// --- Tokens that are not characters ---

Tokenizer Bpe(const std::string& text) {
  return Tokenizer::Bpe(TrainBpe({text}, {300, nullptr}));
}

TEST(CorpusTest, EncodedTextIsPredictedOnceAndCountedInBytes) {
  Case c(Sentences(500, " \xC3\xA9\xE2\x82\xAC "));
  const Tokenizer tokenizer = Bpe(c.training);
  for (int64_t seq_len : {1, 2, 7, 64, 100000}) {
    const Corpus corpus(c.files, c.split, tokenizer, seq_len, 1 << 20);
    std::string text;
    int64_t bytes = 0, tokens = 0;
    for (int64_t i = 0; i < corpus.held_out_windows(); ++i) {
      const Window window = corpus.HeldOutWindow(i);
      ASSERT_GE(window.tokens.size(), 2u);
      ASSERT_LE(static_cast<int64_t>(window.tokens.size()), seq_len + 1);
      const auto first = window.tokens.begin() + (i > 0 ? 1 : 0);
      text += tokenizer.Decode({first, window.tokens.end()});
      bytes += window.target_bytes;
      tokens += static_cast<int64_t>(window.tokens.size()) - 1;
    }
    EXPECT_EQ(text, c.held_out) << seq_len;
    const int32_t first = corpus.HeldOutWindow(0).tokens[0];
    EXPECT_EQ(bytes, static_cast<int64_t>(c.held_out.size() -
                                          tokenizer.Decode({first}).size()));
    EXPECT_LT(tokens, bytes);
    EXPECT_TRUE(corpus.covers_held_out());
  }
}

TEST(CorpusTest, EncodedTrainingWindowsAreStretchesOfTheText) {
  Case c(Sentences(500, " word "));
  const Tokenizer tokenizer = Bpe(c.training);
  const Corpus corpus(c.files, c.split, tokenizer, 20, 100);
  const std::string ring = c.training + c.training;
  std::set<std::vector<int32_t>> seen;
  for (int64_t step = 1; step <= 50; ++step) {
    const Window window = corpus.TrainingWindow(1, step, 0);
    EXPECT_EQ(window.tokens, corpus.TrainingWindow(1, step, 0).tokens);
    ASSERT_EQ(window.tokens.size(), 21u);
    EXPECT_NE(ring.find(tokenizer.Decode(window.tokens)), ring.npos);
    seen.insert(window.tokens);
  }
  EXPECT_GT(seen.size(), 40u);
  EXPECT_EQ(corpus.TrainingWindow(1, 1, 0, 5).tokens.size(), 6u);
  // Longer than the text, which is read as a ring.
  const size_t all = 100000;
  EXPECT_EQ(corpus.TrainingWindow(1, 1, 0, all).tokens.size(), all + 1);
}

TEST(CorpusTest, TextTheTokenizerCannotEncodeNamesFileAndByte) {
  Case c("ab\n%\nba\n%\nabba\n%\naab!\n%\n");
  BpeDefinition definition = TrainBpe({}, {256, nullptr});
  std::swap(definition.tokens['!'], definition.tokens.back());
  definition.tokens.pop_back();
  try {
    const Corpus corpus(c.files, c.split, Tokenizer::Bpe(definition), 4, 10);
    FAIL() << "accepted";
  } catch (const FormatError& error) {
    EXPECT_NE(std::string(error.what()).find("/text: text: byte 20"),
              std::string::npos)
        << error.what();
  }
}

TEST(BuildTokenizerTest, JoinsTheCharactersOfAllFiles) {
  const TemporaryFolder dir;
  const TextFiles files({dir.Write("a", "ba\xC3\xA9"),
                         dir.Write("b", "\xE2\x82\xAC\xF0\x9F\x98\x80z")},
                        dir.path());
  const Tokenizer tokenizer = BuildTokenizer(files, TokenizerKind::kChar);
  EXPECT_EQ(tokenizer.vocab_size(), 6);
  // Ids follow code points: a b z U+00E9 U+20AC U+1F600.
  EXPECT_EQ(tokenizer.Decode({0, 1, 2, 3, 4, 5}),
            "abz\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80");
}

TEST(BuildTokenizerTest, InvalidUtf8NamesTheFile) {
  const TemporaryFolder dir;
  const TextFiles files({dir.Write("bad.txt", "ab\xFF")}, dir.path());
  try {
    BuildTokenizer(files, TokenizerKind::kChar);
    FAIL() << "accepted";
  } catch (const FormatError& error) {
    EXPECT_NE(std::string(error.what()).find("bad.txt"), std::string::npos);
  }
  EXPECT_EQ(BuildTokenizer(files, TokenizerKind::kByte).vocab_size(), 256);
  EXPECT_THROW(BuildTokenizer(files, TokenizerKind::kBpe), ArgumentError);
}

TEST(CheckCoveredTest, RefusesCharactersTheModelDoesNotKnow) {
  const TemporaryFolder dir;
  const TextFiles known({dir.Write("a", "abc")}, dir.path());
  const TextFiles more({dir.Write("b", "abcd")}, dir.path());
  const Tokenizer tokenizer = BuildTokenizer(known, TokenizerKind::kChar);
  EXPECT_NO_THROW(CheckCovered(known, tokenizer));
  EXPECT_THROW(CheckCovered(more, tokenizer), FormatError);
  EXPECT_NO_THROW(CheckCovered(more, Tokenizer::Byte()));
}

}  // namespace
}  // namespace tarn::train
