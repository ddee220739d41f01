// Which rows a row of blocked attention depends on: what is hidden, padded or
// in other rows has no influence, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "kernels/softmax_attention/test_problem.h"

namespace tarn::testing {
namespace {

// What is hidden may hold anything: the same bits as with zeros there, in the
// forward pass and the gradient, whichever term hides it.
TEST_P(BlockedAttentionTest, HiddenNaNHasNoInfluence) {
  for (const int way : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) {
    SCOPED_TRACE(way);
    const int how = way % 5;
    Kind kind;
    kind.seq_len = 100, kind.batch = 1;
    kind.options.causal = how == 0;
    kind.options.local_context = how == 1 ? 9 : 0;
    kind.mask = how == 2;
    kind.key_mask = how == 3;
    kind.bias = how == 4;
    kind.sinks = way >= 5;
    kind.options.softcap = way >= 5 ? 1.5f : 0.0f;
    AttentionProblem p = MakeAttention(kind, 3);
    // Keys from 80 on are hidden from queries before 20.
    for (int64_t h = 0; h < 2; ++h) {
      for (int64_t i = 0; i < 20; ++i) {
        for (int64_t j = 80; j < 100; ++j) {
          const int64_t pair = (h * 100 + i) * 100 + j;
          if (how == 2) p.mask[pair] = 0;
          if (how == 4) p.bias[pair] = -INFINITY;
        }
      }
    }
    for (int64_t j = 80; j < 100 && how == 3; ++j) p.key_mask[j] = 0;
    AttentionProblem poisoned = p;
    const auto poison = [](std::vector<double>& x, int64_t width) {
      std::fill(x.begin() + 80 * 2 * width, x.end(), kNaN);
    };
    poison(poisoned.keys, p.d_key);
    poison(poisoned.values, p.d_value);
    std::vector<double> grad(100 * 2 * 7, 0.0);
    std::mt19937_64 rng(5);
    const std::vector<double> some = Random(20 * 2 * 7, rng);
    std::copy(some.begin(), some.end(), grad.begin());
    std::vector<double> poisoned_grad = grad;
    if (how != 3) {  // these rows are NaN and must not reach the others' keys
      poison(poisoned.queries, p.d_key);
      std::fill(poisoned_grad.begin() + 80 * 2 * 7, poisoned_grad.end(), kNaN);
    }
    KernelCall clean(p), dirty(poisoned);
    const std::vector<double> want = clean.Forward(serial_);
    const std::vector<double> got = dirty.Forward(serial_);
    const int64_t rows = how == 3 ? 100 : 20;
    for (int64_t i = 0; i < rows * 2 * 7; ++i) ASSERT_EQ(want[i], got[i]) << i;
    const auto wanted = clean.Backward(grad, serial_);
    const auto given = dirty.Backward(poisoned_grad, serial_);
    for (int64_t i = 0; i < rows * 2 * 5; ++i) {
      ASSERT_EQ(wanted.queries[i], given.queries[i]) << i;
    }
    if (how == 3) {
      EXPECT_EQ(wanted.keys, given.keys);
      EXPECT_EQ(wanted.values, given.values);
    }
  }
}

// A NaN query reaches its own row and the keys that it reads, nothing else.
TEST_P(BlockedAttentionTest, NaNQueryStaysInItsRow) {
  Kind kind;
  kind.seq_len = 90, kind.batch = 1, kind.heads = 1;
  kind.options.causal = true;
  AttentionProblem p = MakeAttention(kind, 3);
  KernelCall clean(p);
  const std::vector<double> want = clean.Forward(serial_);
  p.queries[10 * 5 + 2] = kNaN;
  KernelCall run(p);
  const std::vector<double> got = run.Forward(serial_);
  for (int64_t i = 0; i < 90 * 7; ++i) {
    if (i / 7 == 10) {
      EXPECT_TRUE(std::isnan(got[i]));
    } else {
      ASSERT_EQ(want[i], got[i]) << i;
    }
  }
  const auto g = run.Backward(std::vector<double>(90 * 7, 1.0), serial_);
  for (int64_t j = 0; j < 90; ++j) {
    EXPECT_EQ(j <= 10, std::isnan(g.keys[j * 5])) << j;
    EXPECT_EQ(j <= 10, std::isnan(g.values[j * 7])) << j;
  }
  // Without its own gradient the row contributes none.
  std::vector<double> grad(90 * 7, 1.0);
  std::fill(grad.begin() + 10 * 7, grad.begin() + 11 * 7, 0.0);
  const auto wanted = clean.Backward(grad, serial_);
  const auto given = run.Backward(grad, serial_);
  EXPECT_EQ(wanted.queries, given.queries);
  EXPECT_EQ(wanted.keys, given.keys);
  EXPECT_EQ(wanted.values, given.values);
}

TEST_P(BlockedAttentionTest, EmptyRowsAreZeroAndSendNothing) {
  Kind kind;
  kind.seq_len = 80, kind.batch = 1;
  kind.options.causal = true;
  kind.options.causal_offset = -70;
  const AttentionProblem p = MakeAttention(kind, 6);
  KernelCall run(p);
  const std::vector<double> out = run.Forward(serial_);
  for (int64_t i = 0; i < 70 * 2 * 7; ++i) ASSERT_EQ(0.0, out[i]);
  std::vector<double> grad(80 * 2 * 7, 0.0);
  std::fill(grad.begin(), grad.begin() + 70 * 2 * 7, 1.0);
  const auto g = run.Backward(grad, serial_, {1, 1, 80, 80});
  for (const auto* x : {&g.queries, &g.keys, &g.values, &g.bias}) {
    for (const double v : *x) ASSERT_EQ(0.0, v);
  }
}

TEST_P(BlockedAttentionTest, NoQueriesNoKeysNoBatch) {
  for (const auto& [batch, seq_len, key_len] :
       {std::tuple(0, 3, 3), {2, 0, 3}, {2, 3, 0}}) {
    Kind kind;
    kind.batch = batch, kind.seq_len = seq_len, kind.key_len = key_len;
    const AttentionProblem p = MakeAttention(kind, 6);
    KernelCall run(p);
    const std::vector<double> out = run.Forward(serial_);
    for (const double x : out) EXPECT_EQ(0.0, x);
    const auto g = run.Backward(std::vector<double>(out.size(), 1.0), serial_,
                                {batch, 1, seq_len, key_len});
    for (const double x : g.keys) EXPECT_EQ(0.0, x);
    for (const double x : g.queries) EXPECT_EQ(0.0, x);
  }
}

TEST_P(BlockedAttentionTest, SameBitsForAnyNumberOfThreads) {
  Kind kind = Kinds().back();
  kind.batch = 3, kind.seq_len = 150, kind.options.scale = 0.4f;
  kind.options.dropout = {0.1, 2};
  kind.bias = kind.key_mask = kind.sinks = true;
  kind.options.softcap = 1.5f;
  const AttentionProblem p = MakeAttention(kind, 8);
  std::mt19937_64 rng(3);
  const std::vector<double> grad = Floats(3 * 150 * 2 * 7, rng);
  KernelCall serial(p);
  const std::vector<double> want = serial.Forward(serial_);
  const auto wanted = serial.Backward(grad, serial_, {1, 2, 150, 150});
  for (const int threads : {2, 3, 8}) {
    ThreadPool pool(threads);
    KernelCall run(p);
    EXPECT_EQ(want, run.Forward(pool));
    const auto got = run.Backward(grad, pool, {1, 2, 150, 150});
    EXPECT_EQ(wanted.queries, got.queries);
    EXPECT_EQ(wanted.keys, got.keys);
    EXPECT_EQ(wanted.values, got.values);
    EXPECT_EQ(wanted.bias, got.bias);
    EXPECT_EQ(wanted.sinks, got.sinks);
  }
}

// A sequence has the same rows and gradients, bit for bit, alone and as the
// second of a batch with more padding. So has a single query at its offset.
TEST_P(BlockedAttentionTest, SameBitsForAnyPaddingAndPlace) {
  Kind kind;
  kind.batch = 1, kind.seq_len = 90, kind.heads = 1;
  kind.options.scale = 0.5f;
  for (const int form : {0, 1, 2}) {
    const bool causal = form > 0;
    kind.options.causal = causal;
    kind.options.window = form == 2 ? 70 : 0;
    kind.options.softcap = form == 2 ? 1.5f : 0.0f;
    const AttentionProblem alone = MakeAttention(kind, 8);
    Kind wide = kind;
    wide.batch = 2, wide.seq_len = 201;
    AttentionProblem both = MakeAttention(wide, 9);
    both.key_lengths = {170, 90};
    const auto place = [](const std::vector<double>& from, int64_t width,
                          std::vector<double>& to) {
      std::fill(to.begin() + 201 * width, to.end(), kNaN);
      std::copy(from.begin(), from.end(), to.begin() + 201 * width);
    };
    place(alone.keys, 5, both.keys);
    place(alone.values, 7, both.values);
    std::vector<double> queries = both.queries;
    place(alone.queries, 5, queries);
    // Padded queries are numbers: rows of their own.
    std::copy(queries.begin() + 201 * 5, queries.begin() + (201 + 90) * 5,
              both.queries.begin() + 201 * 5);
    KernelCall one(alone), two(both);
    const std::vector<double> want = one.Forward(serial_);
    const std::vector<double> got = two.Forward(serial_);
    for (int64_t i = 0; i < 90 * 7; ++i) {
      ASSERT_EQ(want[i], got[201 * 7 + i]) << i;
    }
    std::mt19937_64 rng(4);
    const std::vector<double> grad = Floats(90 * 7, rng);
    std::vector<double> padded = Floats(2 * 201 * 7, rng);
    std::fill(padded.begin() + 201 * 7, padded.end(), 0.0);
    std::copy(grad.begin(), grad.end(), padded.begin() + 201 * 7);
    const auto wanted = one.Backward(grad, serial_);
    const auto given = two.Backward(padded, serial_);
    for (int64_t i = 0; i < 90 * 5; ++i) {
      ASSERT_EQ(wanted.queries[i], given.queries[201 * 5 + i]) << i;
      ASSERT_EQ(wanted.keys[i], given.keys[201 * 5 + i]) << i;
    }
    for (int64_t i = 0; i < 90 * 7; ++i) {
      ASSERT_EQ(wanted.values[i], given.values[201 * 7 + i]) << i;
    }
    AttentionProblem single = alone;
    single.seq_len = 1;
    single.options.causal_offset = 77;
    single.queries.assign(alone.queries.begin() + 77 * 5,
                          alone.queries.begin() + 78 * 5);
    const std::vector<double> row = KernelCall(single).Forward(serial_);
    for (int64_t i = 0; i < 7; ++i) EXPECT_EQ(want[77 * 7 + i], row[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, BlockedAttentionTest,
                         ::testing::ValuesIn(SimdTargets()));

}  // namespace
}  // namespace tarn::testing
