// Examples of two fields: reading, splitting, encoding, batches; edit distance.
#include "data/pairs/examples.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/error.h"
#include "core/rng.h"
#include "core/test_util.h"
#include "data/pairs/batches.h"
#include "data/pairs/edit_distance.h"

namespace tarn::train {
namespace {

using Strings = std::set<std::pair<std::string, std::string>>;

Strings TextOf(const std::vector<Pair>& pairs) {
  Strings texts;
  for (const Pair& pair : pairs) texts.emplace(pair.input, pair.output);
  return texts;
}

// A file, or two of which the first is held out, with their split.
struct Case {
  Case(const std::string& data, bool label_first,
       const std::string& held_out = "")
      : files(held_out.empty()
                  ? std::vector<std::string>{dir.Write("data", data)}
                  : std::vector<std::string>{dir.Write("held", held_out),
                                             dir.Write("data", data)},
              dir.path()),
        split(ReadPairs(files, held_out.empty() ? 0 : 1, label_first)) {}
  TemporaryFolder dir;
  TextFiles files;
  PairSplit split;
};

std::string Lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += "in" + std::to_string(i) + "\tout" + std::to_string(i % 7) + "\n";
  }
  return text;
}

// The message of the FormatError that reading `data` throws; empty: none.
std::string Refusal(const std::string& data, bool label_first) {
  try {
    Case(data, label_first);
  } catch (const FormatError& error) {
    return error.what();
  }
  return "";
}

TEST(ReadPairsTest, SplitsByInputAndDropsDuplicates) {
  std::string text = Lines(2000);
  text += Lines(100);          // again
  text += "in3\tother\r\n\n";  // CRLF, a line that holds nothing
  Case c(text, false);
  EXPECT_EQ(c.split.duplicates, 100);
  EXPECT_EQ(c.split.overlapping, 0);
  const Strings training = TextOf(c.split.training);
  const Strings held_out = TextOf(c.split.held_out);
  EXPECT_EQ(training.size() + held_out.size(), 2001u);
  // One in twenty is held out, within five standard deviations of a binomial
  // (100, sd 9.7).
  EXPECT_NEAR(static_cast<double>(held_out.size()), 100, 49);
  std::set<std::string> inputs;
  for (const auto& [input, output] : held_out) inputs.insert(input);
  for (const auto& [input, output] : training) {
    EXPECT_EQ(inputs.count(input), 0u) << input;
  }
  EXPECT_EQ(training.count({"in3", "other"}), training.count({"in3", "out3"}));
  // An input's side depends on its own bytes: more lines move nothing.
  Case more(text + "new\tx\n", false);
  for (const auto& pair : TextOf(more.split.held_out)) {
    EXPECT_TRUE(held_out.count(pair) == 1 || pair.first == "new");
  }
  EXPECT_NE(more.split.fingerprint, c.split.fingerprint);
}

TEST(ReadPairsTest, AFileHeldOutWholeGoesFirst) {
  Case c("a\tx\nb\ty\nb\tz\nc\tx\n", false, "b\ty\nd\tx\nd\tx\n");
  EXPECT_EQ(TextOf(c.split.training), (Strings{{"a", "x"}, {"c", "x"}}));
  EXPECT_EQ(TextOf(c.split.held_out), (Strings{{"b", "y"}, {"d", "x"}}));
  EXPECT_EQ(c.split.overlapping, 2);
  EXPECT_EQ(c.split.duplicates, 1);
  EXPECT_EQ(PlaceOf(c.files, c.split.training[1]), c.dir / "data" + ":4");
}

TEST(ReadPairsTest, LabelsStandFirst) {
  Case c("7\tthe text\n8\tanother\n", true);
  Strings all = TextOf(c.split.training);
  all.merge(TextOf(c.split.held_out));
  EXPECT_EQ(all, (Strings{{"the text", "7"}, {"another", "8"}}));
  EXPECT_EQ(c.split.held_out.size(), 1u);
}

TEST(ReadPairsTest, RefusesWhatIsNoPairNamingTheLine) {
  const std::string good = "a\tb\nc\td\n";
  EXPECT_EQ(Refusal(good, false), "");
  for (const char* bad : {"no tab", "two\ttabs\there", "\tno source",
                          "no target\t", "\t", "a\r\tb\tc"}) {
    const std::string message = Refusal(good + bad + "\n", false);
    EXPECT_NE(message.find("data:3"), std::string::npos) << bad << message;
  }
  const std::string longest(kMaxLineBytes - 2, 'x');
  EXPECT_EQ(Refusal(good + "a\t" + longest + "\n", false), "");
  EXPECT_NE(Refusal(good + "ab\t" + longest + "\n", false), "");
  const std::string label(kMaxLabelBytes + 1, 'x');
  EXPECT_EQ(Refusal(good + label + "\tb\n", false), "");
  EXPECT_NE(Refusal(good + label + "\tb\n", true), "");
  // One input alone leaves nothing to train on.
  EXPECT_NE(Refusal("a\tb\na\tc\n", false), "");
}

TEST(ReadPairsTest, BytesFromOutsideNeverCrash) {
  Rng rng(5);
  for (int round = 0; round < 300; ++round) {
    std::string text;
    const uint64_t size = 1 + rng.Below(200);
    for (uint64_t i = 0; i < size; ++i) {
      // Mostly the bytes that mean something.
      text += rng.Below(3) == 0 ? static_cast<char>(rng.Below(256))
                                : "ab\t\n\r\xC3\xA9"[rng.Below(7)];
    }
    const TemporaryFolder dir;
    const TextFiles files({dir.Write("data", text)}, dir.path());
    for (const bool label_first : {false, true}) {
      try {
        const PairSplit split = ReadPairs(files, 0, label_first);
        const Tokenizer tokenizer = BuildPairTokenizer(
            files, split, TokenizerKind::kChar, !label_first);
        const Examples examples(files, split.training, tokenizer, nullptr, 50);
        EXPECT_GT(examples.size(), 0);
      } catch (const FormatError&) {
      }
    }
  }
}

TEST(LabelsTest, AreSortedDistinctAndReadBack) {
  Case c("b\t1\na\t2\n\xC3\xA9\t3\nb\t4\n", true);
  const Labels labels(c.files, c.split);
  ASSERT_EQ(labels.size(), 3);
  EXPECT_EQ(labels.name(0) + labels.name(1) + labels.name(2), "ab\xC3\xA9");
  EXPECT_EQ(labels.Find("b"), 1);
  EXPECT_EQ(labels.Find("c"), -1);
  c.dir.Write("labels.json", labels.ToJson());
  EXPECT_EQ(Labels::Open(c.dir.path(), 3).ToJson(), labels.ToJson());
  EXPECT_THROW(Labels::Open(c.dir.path(), 2), FormatError);
  // The file alone decides the order of the classes.
  c.dir.Write("labels.json", "[\"z\", \"a\"]");
  EXPECT_EQ(Labels::Open(c.dir.path(), 2).Find("a"), 1);
  for (const char* bad : {"{}", "[1, 2]", "[\"a\", \"a\"]", "[\"a\"", "[]"}) {
    c.dir.Write("labels.json", bad);
    EXPECT_THROW(Labels::Open(c.dir.path(), 2), FormatError) << bad;
  }
  EXPECT_THROW(Labels::Open(c.dir / "none", 2), FormatError);
  Case one("a\t1\na\t2\n", true);
  EXPECT_THROW(Labels(one.files, one.split), FormatError);
  Case bytes("a\xFF\t1\nb\t2\n", true);
  EXPECT_THROW(Labels(bytes.files, bytes.split), FormatError);
}

TEST(ExamplesTest, EncodeBothSidesAndKeepOrder) {
  Case c("ab\tx\xC3\xA9\nb\tyy\n", false);
  std::vector<Pair> all = c.split.training;
  all.insert(all.end(), c.split.held_out.begin(), c.split.held_out.end());
  for (const TokenizerKind kind :
       {TokenizerKind::kByte, TokenizerKind::kChar}) {
    const Tokenizer tokenizer =
        BuildPairTokenizer(c.files, c.split, kind, true);
    EXPECT_EQ(tokenizer.vocab_size(), kind == TokenizerKind::kByte ? 256 : 6);
    EXPECT_EQ(NewlineToken(tokenizer), kind == TokenizerKind::kByte ? 10 : 0);
    const Examples examples(c.files, all, tokenizer, nullptr, 3);
    for (int64_t i = 0; i < 2; ++i) {
      const auto input = examples.input(i), target = examples.target(i);
      EXPECT_EQ(tokenizer.Decode({input.begin(), input.end()}), all[i].input);
      EXPECT_EQ(tokenizer.Decode({target.begin(), target.end()}),
                all[i].output);
      EXPECT_EQ(examples.label(i), -1);
    }
    EXPECT_THROW(Examples(c.files, all, tokenizer, nullptr, 1), FormatError);
  }
  // Texts of a classifier need no newline; labels are not text.
  Case d("7\tab\n8\tba\n", true);
  const Tokenizer tokenizer =
      BuildPairTokenizer(d.files, d.split, TokenizerKind::kChar, false);
  EXPECT_EQ(tokenizer.vocab_size(), 2);
  EXPECT_THROW(NewlineToken(tokenizer), FormatError);
  const Labels labels(d.files, d.split);
  const Examples examples(d.files, d.split.training, tokenizer, &labels, 2);
  EXPECT_EQ(labels.name(examples.label(0)), d.split.training[0].output);
  EXPECT_TRUE(examples.target(0).empty());
  // A character and a label that a model does not know.
  Case e("7\tabc\n7\tacb\n9\ta\n", true);
  EXPECT_THROW(Examples(e.files, e.split.training, tokenizer, &labels, 9),
               FormatError);
  Case f("7\tab\n9\ta\n9\tb\n", true);
  std::vector<Pair> both = f.split.training;
  both.insert(both.end(), f.split.held_out.begin(), f.split.held_out.end());
  EXPECT_THROW(Examples(f.files, both, tokenizer, &labels, 9), FormatError);
}

// `count` examples of 1 to 40 tokens.
struct Batches {
  explicit Batches(int count)
      : c(
            [&] {
              Rng rng(3);
              std::string text;
              for (int i = 0; i < count; ++i) {
                text += std::string(1 + rng.Below(39), 'a') +
                        std::to_string(i) + "\tb\n";
              }
              return text;
            }(),
            false, "held\tout\n"),
        examples(c.files, c.split.training, Tokenizer::Byte(), nullptr, 99) {}
  Case c;
  Examples examples;
};

TEST(BatchOrderTest, EveryExampleOnceAnEpochInBatchesOfOneLength) {
  const Batches b(1003);
  BatchOrder order(b.examples, 10, 7);
  ASSERT_EQ(order.batches(), 100);
  double filled = 0, read = 0;
  std::vector<std::vector<int64_t>> epochs[2];
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    std::map<int64_t, int> seen;
    for (int64_t i = 0; i < 100; ++i) {
      const std::vector<int64_t> batch = order.Batch(100 * epoch + i);
      ASSERT_EQ(batch.size(), 10u);
      size_t longest = 0;
      for (const int64_t example : batch) {
        ++seen[example];
        longest = std::max(longest, b.examples.input(example).size());
        read += static_cast<double>(b.examples.input(example).size());
      }
      filled += 10.0 * static_cast<double>(longest);
      epochs[epoch].push_back(batch);
    }
    EXPECT_EQ(seen.size(), 1000u);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  // Without buckets every other place would be filled up.
  EXPECT_LT(filled, 1.1 * read);
  // Lengths are spread over the epoch: the shortest are not together.
  double first_half = 0;
  for (int i = 0; i < 50; ++i) {
    first_half += static_cast<double>(b.examples.input(epochs[0][i][0]).size());
  }
  EXPECT_NEAR(first_half / 50, 22.5, 6);
}

TEST(BatchOrderTest, IsAPureFunctionOfSeedAndIndex) {
  const Batches b(200);
  BatchOrder one(b.examples, 16, 7), two(b.examples, 16, 7);
  BatchOrder other(b.examples, 16, 8);
  int differ = 0;
  std::vector<std::vector<int64_t>> forward;
  for (int64_t i = 0; i < 30; ++i) forward.push_back(one.Batch(i));
  for (int64_t i = 29; i >= 0; --i) {
    EXPECT_EQ(two.Batch(i), forward[i]);
    differ += other.Batch(i) != forward[i];
  }
  EXPECT_GT(differ, 20);
  // Fewer examples than a batch takes.
  const Batches few(3);
  BatchOrder all(few.examples, 16, 7);
  EXPECT_EQ(all.batches(), 1);
  EXPECT_EQ(all.Batch(5).size(), 3u);
}

// By definition, without a table: the best of the three last edits.
size_t SlowDistance(std::string_view a, std::string_view b) {
  if (a.empty() || b.empty()) return a.size() + b.size();
  const std::string_view a1 = a.substr(0, a.size() - 1);
  const std::string_view b1 = b.substr(0, b.size() - 1);
  return std::min({SlowDistance(a1, b1) + (a.back() != b.back()),
                   SlowDistance(a1, b) + 1, SlowDistance(a, b1) + 1});
}

TEST(EditDistanceTest, IsTheLeastNumberOfEdits) {
  Rng rng(11);
  for (int round = 0; round < 200; ++round) {
    const auto draw = [&] {
      std::string text;
      for (uint64_t left = rng.Below(6); left > 0; --left) {
        text += static_cast<char>('a' + rng.Below(3));
      }
      return text;
    };
    const std::string a = draw(), b = draw();
    const std::vector<int32_t> tokens(a.begin(), a.end());
    EXPECT_EQ(EditDistance(a, b), SlowDistance(a, b)) << a << " " << b;
    EXPECT_EQ(EditDistance(tokens, b), SlowDistance(a, b));
  }
  using std::string_view_literals::operator""sv;
  EXPECT_EQ(EditDistance("kitten"sv, "sitting"sv), 3u);
  EXPECT_EQ(EditDistance(""sv, "abc"sv), 3u);
  EXPECT_EQ(EditDistance("abcd"sv, "bcde"sv), 2u);
}

}  // namespace
}  // namespace tarn::train
