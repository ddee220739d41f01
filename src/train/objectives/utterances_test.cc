#include "train/objectives/utterances.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <numbers>
#include <optional>
#include <set>

#include "core/error.h"
#include "core/rng.h"
#include "core/test_util.h"
#include "data/files/wav_test_file.h"
#include "torch_nn/torch.h"

namespace tarn::train {
namespace utterances_test {

// A tone of one pitch for each speaker, 0.1 to 0.3 s.
class Set {
 public:
  Set() {
    int64_t number = 0;
    for (const char* speaker : {"al", "bo", "cy", "di"}) {
      for (int64_t digit = 0; digit < 10; ++digit) {
        std::vector<int16_t> samples(800 + 160 * digit);
        for (size_t i = 0; i < samples.size(); ++i) {
          const double turn = 2 * std::numbers::pi * static_cast<double>(i) *
                              static_cast<double>(300 + 200 * (number / 10));
          samples[i] = static_cast<int16_t>(8000 * std::sin(turn / 8000));
        }
        folder_.Write(StrCat(digit, "_", speaker, "_0.wav"), WavFile(samples));
        ++number;
      }
    }
    digits_.emplace(SpokenDigits::Read(folder_.path()));
    split_ = SplitSpeakers(*digits_, "cy", "di");
  }
  Utterances Make(const UtteranceOptions& options) const {
    return {*digits_, split_, options};
  }
  const SpokenDigits& digits() const { return *digits_; }

 private:
  TemporaryFolder folder_;
  std::optional<SpokenDigits> digits_;
  SpeakerSplit split_;
};

const Set& TestSet() {
  static const Set set;
  return set;
}

UtteranceOptions Joined(double augment) {
  UtteranceOptions options;
  options.join_frames = 120;
  options.augment = augment;
  options.seed = 9;
  return options;
}

bool Same(const Utterance& a, const Utterance& b) {
  return a.letters == b.letters && a.features.sizes() == b.features.sizes() &&
         torch::equal(a.features, b.features);
}

TEST(Utterances, ATrainingRowIsAFunctionOfSeedStepAndRow) {
  const Utterances one = TestSet().Make(Joined(1)),
                   two = TestSet().Make(Joined(1));
  UtteranceOptions other = Joined(1);
  other.seed = 10;
  const Utterances three = TestSet().Make(other);
  // In another order, and from another object.
  for (int64_t row = 4; row-- > 0;) two.Training(7, row);
  for (int64_t row = 0; row < 4; ++row) {
    const Utterance utterance = one.Training(7, row);
    EXPECT_TRUE(Same(utterance, two.Training(7, row)));
    EXPECT_FALSE(Same(utterance, one.Training(8, row)));
    EXPECT_FALSE(Same(utterance, one.Training(7, row + 1)));
    EXPECT_FALSE(Same(utterance, three.Training(7, row)));
  }
}

TEST(Utterances, RowsFitAndHoldWholeDigits) {
  for (const double augment : {0.0, 1.0}) {
    const Utterances utterances = TestSet().Make(Joined(augment));
    size_t longest = 0;
    for (int64_t row = 0; row < 50; ++row) {
      const Utterance one = utterances.Training(1, row);
      EXPECT_LE(one.features.size(0), 120);
      EXPECT_EQ(one.features.size(1), 40);
      EXPECT_TRUE(one.features.isfinite().all().item<bool>());
      EXPECT_GE(one.letters.size(), 3u);
      longest = std::max(longest, one.letters.size());
    }
    EXPECT_GE(longest, 12u);  // several digits were joined
  }
  UtteranceOptions alone = Joined(0);
  alone.join_frames = 0;
  for (int64_t row = 0; row < 50; ++row) {
    EXPECT_LE(TestSet().Make(alone).Training(1, row).letters.size(), 5u);
  }
}

TEST(Utterances, EveryHeldOutDigitOccursOnce) {
  const Utterances utterances = TestSet().Make(Joined(0));
  for (const auto& side : {utterances.HeldOut(1000), utterances.Test(1000)}) {
    EXPECT_GT(side.size(), 1u);
    std::map<int64_t, int64_t> found, wanted;
    for (const Utterance& one : side) {
      EXPECT_LE(one.features.size(0), 120);
      for (const int64_t letter : one.letters) ++found[letter];
    }
    for (int64_t digit = 0; digit < 10; ++digit) {
      for (const int64_t letter : Spell(digit)) ++wanted[letter];
    }
    EXPECT_EQ(found, wanted);
  }
}

// A speaker is a tone here: the rows of another one alone are never drawn.
TEST(Utterances, TrainingRowsAreOfTrainingSpeakers) {
  UtteranceOptions alone = Joined(0);
  alone.join_frames = 0;
  const Utterances utterances = TestSet().Make(alone);
  const auto loudest = [](const Utterance& one) {
    // The tone's own band changes least: noise moves the others.
    return one.features.var(0).argmin().item<int64_t>();
  };
  std::set<int64_t> training, others;
  for (int64_t row = 0; row < 60; ++row) {
    training.insert(loudest(utterances.Training(1, row)));
  }
  for (const Utterance& one : utterances.HeldOut(100)) {
    others.insert(loudest(one));
  }
  for (const Utterance& one : utterances.Test(100)) others.insert(loudest(one));
  for (const int64_t band : others) EXPECT_EQ(training.count(band), 0u) << band;
}

TEST(Utterances, HeldOutRowsDoNotDependOnSeedOrAugmentation) {
  const std::vector<Utterance> held_out =
      TestSet().Make(Joined(0)).HeldOut(1000);
  UtteranceOptions other = Joined(1);
  other.seed = 77;
  const std::vector<Utterance> again = TestSet().Make(other).HeldOut(1000);
  ASSERT_EQ(held_out.size(), again.size());
  for (size_t i = 0; i < held_out.size(); ++i) {
    EXPECT_TRUE(Same(held_out[i], again[i]));
  }
  // With a bound some of the same utterances are left.
  const std::vector<Utterance> some = TestSet().Make(Joined(0)).HeldOut(2);
  ASSERT_EQ(some.size(), 2u);
  EXPECT_TRUE(Same(some[0], held_out[0]));
  EXPECT_TRUE(Same(some[1], held_out[held_out.size() / 2]));
}

TEST(Utterances, AugmentationChangesValuesAndMasksWithTheMean) {
  const Utterance plain = TestSet().Make(Joined(0)).Training(3, 0);
  // A value may be its mean by chance, one in very many; a mask is wide.
  const int64_t chance = plain.features.numel() / 1000;
  EXPECT_LE(plain.features.eq(0).sum().item<int64_t>(), chance);
  int64_t masked = 0;
  for (int64_t row = 0; row < 20; ++row) {
    masked += TestSet()
                  .Make(Joined(1))
                  .Training(3, row)
                  .features.eq(0)
                  .sum()
                  .item<int64_t>();
  }
  EXPECT_GT(masked, 2 * 20 * chance);
}

UtteranceRows RandomRows(const std::vector<int64_t>& lengths,
                         const std::vector<std::vector<int64_t>>& letters) {
  std::vector<Utterance> utterances;
  for (size_t b = 0; b < lengths.size(); ++b) {
    utterances.push_back({torch::randn({lengths[b], 2}), letters[b]});
  }
  return MakeUtteranceRows(utterances, 2);
}

TEST(UtteranceRows, ArePaddedAndCounted) {
  const UtteranceRows rows = RandomRows({3, 5}, {{1, 2}, {4}});
  EXPECT_EQ(rows.batch.frames.sizes(), (std::vector<int64_t>{2, 5, 2}));
  EXPECT_EQ(rows.batch.frames[0].narrow(0, 3, 2).abs().sum().item<double>(), 0);
  EXPECT_EQ(rows.frames, 8);
  EXPECT_EQ(rows.total_letters, 3);
  EXPECT_EQ(rows.counted_letters, 3);
  EXPECT_TRUE(torch::equal(
      rows.letters, torch::tensor({int64_t{1}, int64_t{2}, int64_t{4}})));
  EXPECT_TRUE(torch::equal(rows.letter_counts,
                           torch::tensor({int64_t{2}, int64_t{1}})));
}

// By definition: the likelihood of letters is the sum over all paths of
// classes, one a frame, that collapse to them.
double Nats(const torch::Tensor& logits, int64_t length,
            const std::vector<int64_t>& letters) {
  const torch::Tensor probabilities =
      logits.to(torch::kFloat64).softmax(-1);  // [T, C]
  double likelihood = 0;
  std::vector<int64_t> path(length);
  const std::function<void(int64_t, double)> visit = [&](int64_t t, double p) {
    if (t == length) {
      std::vector<int64_t> collapsed;
      for (int64_t i = 0; i < length; ++i) {
        if (path[i] != 0 && (i == 0 || path[i] != path[i - 1])) {
          collapsed.push_back(path[i]);
        }
      }
      if (collapsed == letters) likelihood += p;
      return;
    }
    for (int64_t c = 0; c < logits.size(1); ++c) {
      path[t] = c;
      visit(t + 1, p * probabilities[t][c].item<double>());
    }
  };
  visit(0, 1.0);
  return -std::log(likelihood);
}

TEST(CtcLoss, IsTheSumOverAllPaths) {
  torch::manual_seed(2);
  const std::vector<std::vector<int64_t>> letters = {{1, 2}, {2, 2}, {1}, {}};
  const std::vector<int64_t> lengths = {5, 4, 1, 3};
  const UtteranceRows rows = RandomRows(lengths, letters);
  const torch::Tensor logits = torch::randn({4, 5, 3});
  double nats = 0;
  for (int64_t b = 0; b < 4; ++b) {
    nats += Nats(logits[b], lengths[b], letters[b]);
  }
  EXPECT_NEAR(CtcLoss(logits, rows).item<double>(), nats, 1e-5);
}

TEST(CtcLoss, ARowTooShortForItsLettersCountsNothing) {
  torch::manual_seed(2);
  // Two equal letters need a blank between them: three frames.
  const UtteranceRows rows = RandomRows({2, 3}, {{1, 1}, {2}});
  const torch::Tensor logits = torch::randn({2, 3, 3}).requires_grad_();
  EXPECT_EQ(rows.total_letters, 3);
  EXPECT_EQ(rows.counted_letters, 1);
  const torch::Tensor loss = CtcLoss(logits, rows);
  EXPECT_NEAR(loss.item<double>(), Nats(logits[1].detach(), 3, {2}), 1e-5);
  loss.backward();
  EXPECT_EQ(logits.grad()[0].abs().max().item<double>(), 0.0);
  EXPECT_GT(logits.grad()[1].abs().max().item<double>(), 0.0);
}

// A row is counted from the first length that gives it a likelihood.
TEST(CtcLoss, CountedLettersAreThoseOfRowsWithALikelihood) {
  torch::manual_seed(3);
  const std::vector<std::vector<int64_t>> texts = {
      {}, {1}, {1, 2}, {1, 1}, {1, 1, 2, 2}, {2, 2, 2}};
  for (const std::vector<int64_t>& text : texts) {
    for (int64_t len = 1; len <= 6; ++len) {
      const UtteranceRows rows = RandomRows({len}, {text});
      const double nats = Nats(torch::randn({len, 3}), len, text);
      EXPECT_EQ(rows.counted_letters,
                std::isfinite(nats) ? std::ssize(text) : 0)
          << text.size() << " letters, " << len << " frames";
    }
  }
}

TEST(CtcLoss, NoRows) {
  EXPECT_EQ(CtcLoss(torch::randn({0, 4, 3}), {}).item<double>(), 0.0);
}

TEST(GreedyLetters, CollapsesRepeatsAndDropsBlanks) {
  const auto path = torch::tensor({{0, 1, 1, 0, 1, 2}, {2, 2, 2, 1, 1, 1}});
  const torch::Tensor logits = torch::one_hot(path, 3).to(torch::kFloat32);
  const auto letters =
      GreedyLetters(logits, torch::tensor({int64_t{6}, int64_t{3}}));
  EXPECT_EQ(letters[0], (std::vector<int64_t>{1, 1, 2}));
  EXPECT_EQ(letters[1], (std::vector<int64_t>{2}));
  EXPECT_TRUE(
      GreedyLetters(torch::randn({1, 0, 3}), torch::tensor({int64_t{0}}))[0]
          .empty());
}

}  // namespace utterances_test
}  // namespace tarn::train
