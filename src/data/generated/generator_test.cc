// Rows made by formula: read back token by token, counted, and compared with
// what their definition promises.
#include "data/generated/generator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/error.h"

namespace tarn::train {
namespace {

GeneratorOptions Copy(int64_t symbols = 10) {
  return {.kind = GeneratorKind::kCopy, .symbols = symbols};
}
GeneratorOptions Mqar(int64_t symbols, int64_t pairs, double power = 0.01,
                      bool distract = true) {
  return {.kind = GeneratorKind::kMqar,
          .symbols = symbols,
          .pairs = pairs,
          .power = power,
          .distract = distract};
}

// Length of the string that a row copies, after checking every token and
// target against the definition.
int64_t CheckCopyRow(const GeneratedRow& row, int64_t seq_len,
                     int64_t symbols) {
  EXPECT_EQ(static_cast<int64_t>(row.inputs.size()), seq_len);
  EXPECT_EQ(row.targets.size(), row.inputs.size());
  int64_t n = 0;
  while (n < seq_len && row.inputs[n] != 0) ++n;
  for (int64_t t = 0; t < seq_len; ++t) {
    int32_t want = 0;  // separator and padding
    if (t < n) {
      want = row.inputs[t];
      EXPECT_GE(want, 1);
      EXPECT_LE(want, symbols);
    } else if (t > n && t <= 2 * n) {
      want = row.inputs[t - n - 1];
    }
    EXPECT_EQ(row.inputs[t], want) << t;
    // The target of a labelled place is the token after it.
    const bool labelled = n - 1 <= t && t <= 2 * n - 1;
    EXPECT_EQ(row.targets[t], labelled ? row.inputs[t + 1] : kUnlabelled) << t;
  }
  return n;
}

TEST(Generator, CopyRowsAreStringSeparatorString) {
  struct Case {
    int64_t seq_len, least, most;
  };
  // 128 is the paper's: 32 to 62.
  for (const Case& c : {Case{128, 32, 62}, Case{64, 16, 30}, Case{5, 1, 1},
                        Case{7, 1, 2}, Case{31, 7, 14}}) {
    const Generator generator(Copy(), c.seq_len);
    EXPECT_EQ(generator.vocab_size(), 11);
    std::map<int64_t, int64_t> lengths;
    constexpr int64_t kRows = 3000;
    for (int64_t row = 0; row < kRows; ++row) {
      ++lengths[CheckCopyRow(generator.TrainingRow(1, 1 + row / 32, row % 32),
                             c.seq_len, 10)];
      if (testing::Test::HasFailure()) return;
    }
    EXPECT_EQ(lengths.begin()->first, c.least);
    EXPECT_EQ(lengths.rbegin()->first, c.most);
    // Uniform: five standard deviations of a binomial count.
    const double p = 1.0 / static_cast<double>(c.most - c.least + 1);
    const double spread = 5 * std::sqrt(kRows * p * (1 - p));
    for (const auto& [n, count] : lengths) {
      EXPECT_NEAR(static_cast<double>(count), kRows * p, spread) << n;
    }
  }
}

TEST(Generator, CopySymbolsAreUniform) {
  const Generator generator(Copy(4), 64);
  std::map<int32_t, double> counts;
  double total = 0;
  for (int64_t row = 0; row < 500; ++row) {
    const GeneratedRow made = generator.TrainingRow(3, 1, row);
    for (size_t t = 0; made.inputs[t] != 0; ++t, ++total) {
      ++counts[made.inputs[t]];
    }
  }
  ASSERT_EQ(counts.size(), 4u);
  for (const auto& [symbol, count] : counts) {
    EXPECT_NEAR(count, total / 4, 5 * std::sqrt(total * 3 / 16)) << symbol;
  }
}

// Slots of the queries, key by key, after checking the whole row.
std::vector<int64_t> CheckMqarRow(const GeneratedRow& row, int64_t seq_len,
                                  const GeneratorOptions& options) {
  const int64_t half = options.symbols / 2, context = 2 * options.pairs;
  EXPECT_EQ(static_cast<int64_t>(row.inputs.size()), seq_len);
  EXPECT_EQ(row.targets.size(), row.inputs.size());
  std::map<int32_t, int32_t> value_of;
  std::map<int32_t, int64_t> number;
  std::set<int32_t> values;
  for (int64_t p = 0; p < options.pairs; ++p) {
    const int32_t key = row.inputs[2 * p], value = row.inputs[2 * p + 1];
    EXPECT_TRUE(1 <= key && key < half) << key;
    EXPECT_TRUE(half <= value && value < options.symbols) << value;
    value_of[key] = value;
    number[key] = p;
    values.insert(value);
  }
  EXPECT_EQ(static_cast<int64_t>(value_of.size()), options.pairs);
  EXPECT_EQ(static_cast<int64_t>(values.size()), options.pairs);
  std::vector<int64_t> slots(options.pairs, -1);
  for (int64_t t = 0; t < seq_len; ++t) {
    if (row.targets[t] == kUnlabelled) {
      EXPECT_TRUE(0 <= row.inputs[t] && row.inputs[t] < options.symbols);
      if (t >= context && !options.distract) {
        EXPECT_EQ(row.inputs[t], 0);
      }
      continue;
    }
    EXPECT_GE(t, context);
    EXPECT_EQ(t % 2, 0);
    EXPECT_EQ(value_of.count(row.inputs[t]), 1u);
    EXPECT_EQ(row.targets[t], value_of[row.inputs[t]]);
    int64_t& slot = slots[number[row.inputs[t]]];
    EXPECT_EQ(slot, -1) << "asked twice";
    slot = (t - context) / 2;
  }
  EXPECT_EQ(std::count(slots.begin(), slots.end(), -1), 0);
  return slots;
}

TEST(Generator, MqarAsksEachKeyOnce) {
  struct Case {
    int64_t seq_len;
    GeneratorOptions options;
  };
  for (const Case& c : {Case{64, Mqar(8192, 4)}, Case{64, Mqar(65, 16)},
                        Case{32, Mqar(64, 8, 1, false)}, Case{4, Mqar(5, 1)},
                        Case{512, Mqar(8192, 64)}}) {
    const Generator generator(c.options, c.seq_len);
    EXPECT_EQ(generator.vocab_size(), c.options.symbols);
    for (int64_t row = 0; row < 200; ++row) {
      CheckMqarRow(generator.TrainingRow(5, 9, row), c.seq_len, c.options);
      if (testing::Test::HasFailure()) return;
    }
  }
}

// Probability that each slot takes the first key's query: p(i) ~ i^(a - 1).
TEST(Generator, MqarSlotsFollowThePowerLaw) {
  for (const double power : {0.01, 0.5, 1.0}) {
    const GeneratorOptions options = Mqar(256, 3, power);
    const Generator generator(options, 38);  // 16 slots
    constexpr int64_t kRows = 20000;
    // Two keys: the first is drawn from all slots, the second from the rest.
    std::vector<double> first(16), second(16), want(16), want_second(16);
    for (int64_t row = 0; row < kRows; ++row) {
      const auto slots =
          CheckMqarRow(generator.TrainingRow(2, 1, row), 38, options);
      ++first[slots[0]];
      ++second[slots[1]];
    }
    double sum = 0;
    for (int i = 0; i < 16; ++i) sum += want[i] = std::pow(i + 1, power - 1);
    for (double& p : want) p /= sum;
    for (int i = 0; i < 16; ++i) {
      for (int j = 0; j < 16; ++j) {
        if (j != i) want_second[i] += want[j] * want[i] / (1 - want[j]);
      }
    }
    for (int i = 0; i < 16; ++i) {
      const auto spread = [](double p) {
        return 5 * std::sqrt(kRows * p * (1 - p));
      };
      EXPECT_NEAR(first[i], kRows * want[i], spread(want[i])) << power;
      EXPECT_NEAR(second[i], kRows * want_second[i], spread(want_second[i]))
          << power;
    }
  }
}

TEST(Generator, RowsArePureFunctionsAndStreamsDiffer) {
  for (const GeneratorOptions& options : {Copy(), Mqar(256, 4)}) {
    const Generator a(options, 64), b(options, 64);
    EXPECT_EQ(a.TrainingRow(1, 2, 3).inputs, b.TrainingRow(1, 2, 3).inputs);
    EXPECT_EQ(a.TrainingRow(1, 2, 3).targets, b.TrainingRow(1, 2, 3).targets);
    EXPECT_EQ(a.HeldOutRow(1, 3).inputs, b.HeldOutRow(1, 3).inputs);
    std::set<std::vector<int32_t>> seen;
    for (uint64_t seed = 0; seed < 3; ++seed) {
      for (int64_t i = 0; i < 50; ++i) {
        seen.insert(a.TrainingRow(seed, 1, i).inputs);
        seen.insert(a.TrainingRow(seed, 2 + i, 0).inputs);
        seen.insert(a.HeldOutRow(seed, i).inputs);
      }
    }
    EXPECT_EQ(seen.size(), 450u);
  }
}

// Compares the bound with counts, where rows are few enough to repeat.
TEST(Generator, RepeatedShareIsWhatIsCounted) {
  struct Case {
    int64_t seq_len, rows;
    GeneratorOptions options;
  };
  for (const Case& c : {Case{12, 400, Copy(10)}, Case{16, 3000, Copy(4)},
                        Case{4, 20, Mqar(40, 1)}}) {
    const Generator generator(c.options, c.seq_len);
    const auto context = [&](const GeneratedRow& row) {
      // mqar: its first pair is all that the bound counts.
      const bool copy = c.options.kind == GeneratorKind::kCopy;
      return std::vector<int32_t>(row.inputs.begin(),
                                  row.inputs.begin() + (copy ? c.seq_len : 2));
    };
    std::set<std::vector<int32_t>> training;
    for (int64_t i = 0; i < c.rows; ++i) {
      training.insert(context(generator.TrainingRow(7, 1, i)));
    }
    constexpr int64_t kHeldOut = 4000;
    double repeated = 0;
    for (int64_t i = 0; i < kHeldOut; ++i) {
      repeated += training.count(context(generator.HeldOutRow(7, i)));
    }
    const double bound = generator.RepeatedShare(static_cast<double>(c.rows));
    EXPECT_LE(repeated / kHeldOut, bound + 5 / std::sqrt(4.0 * kHeldOut));
    EXPECT_GE(repeated / kHeldOut, bound / 3);
  }
  EXPECT_LT(Generator(Copy(), 64).RepeatedShare(1e6), 1e-10);
  EXPECT_LT(Generator(Mqar(8192, 4), 64).RepeatedShare(1e8), 1e-19);
}

TEST(Generator, RefusesSizesThatDoNotFit) {
  const auto refused = [](const GeneratorOptions& options, int64_t seq_len) {
    try {
      Generator(options, seq_len);
    } catch (const ArgumentError& error) {
      return error.where();
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refused({}, 64), "--generator");
  EXPECT_EQ(refused(Copy(-1), 64), "--symbols");
  EXPECT_EQ(refused(Copy(1 << 21), 64), "--symbols");
  EXPECT_EQ(refused(Copy(), 4), "--seq-len");
  EXPECT_EQ(refused(Copy(), 0), "--seq-len");
  EXPECT_EQ(refused(Copy(), 5), "accepted");
  EXPECT_EQ(refused(Mqar(256, 4), 63), "--seq-len");
  EXPECT_EQ(refused(Mqar(64, 4), 64), "--symbols");
  EXPECT_EQ(refused(Mqar(1 << 21, 4), 64), "--symbols");
  EXPECT_EQ(refused(Mqar(256, 0), 64), "--pairs");
  EXPECT_EQ(refused(Mqar(256, 17), 64), "--pairs");
  EXPECT_EQ(refused(Mqar(256, 16), 64), "accepted");
  EXPECT_EQ(refused(Mqar(256, 4, 0), 64), "--mqar-power");
  EXPECT_EQ(refused(Mqar(256, 4, 1.5), 64), "--mqar-power");
  EXPECT_EQ(refused(Mqar(256, 4, NAN), 64), "--mqar-power");
  EXPECT_EQ(Generator(Copy(0), 64).vocab_size(), 11);
  EXPECT_EQ(Generator(Mqar(0, 4), 64).vocab_size(), 8192);
}

}  // namespace
}  // namespace tarn::train
