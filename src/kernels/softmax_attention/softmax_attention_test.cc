#include "kernels/softmax_attention/softmax_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/rng.h"
#include "kernels/simd_target.h"

namespace tarn {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

class SoftmaxAttentionTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ForceSimdTarget(GetParam()); }
  void TearDown() override { ResetSimdTarget(); }
};

// One head inside a wider cache; everything outside the head is NaN.
struct Problem {
  int64_t seq_len, d_key, d_value;
  std::vector<float> query, keys, values;

  Problem(int64_t seq_len, int64_t d_key, int64_t d_value, double size = 1)
      : seq_len(seq_len),
        d_key(d_key),
        d_value(d_value),
        keys(seq_len * (d_key + 3), kNaN),
        values(seq_len * (d_value + 2), kNaN) {
    Rng rng(static_cast<uint64_t>(seq_len * 1000 + d_key * 10 + d_value));
    const auto normal = [&] { return static_cast<float>(rng.Normal()); };
    for (int64_t i = 0; i < d_key; ++i) {
      query.push_back(static_cast<float>(size) * normal());
    }
    for (int64_t j = 0; j < seq_len; ++j) {
      for (int64_t i = 0; i < d_key; ++i) keys[j * (d_key + 3) + i] = normal();
      for (int64_t i = 0; i < d_value; ++i) {
        values[j * (d_value + 2) + i] = normal();
      }
    }
  }

  std::vector<float> Run(float scale, bool streams = false,
                         const float* next = nullptr) const {
    return Run(SoftmaxStepOptions{scale}, streams, next);
  }
  std::vector<float> Run(const SoftmaxStepOptions& options,
                         bool streams = false,
                         const float* next = nullptr) const {
    KeyValueCache cache = {keys.data(), values.data(), d_key + 3, d_value + 2,
                           seq_len,     d_key,         d_value};
    cache.streams = streams;
    cache.next = next;
    std::vector<float> scores(seq_len, kNaN), out(d_value + 1, 77.0f);
    SoftmaxAttentionStep(query.data(), cache, options, scores.data(),
                         out.data());
    EXPECT_EQ(77.0f, out.back());
    out.pop_back();
    return out;
  }

  std::vector<double> Reference(double scale, double cap = 0,
                                const float* sink = nullptr) const {
    std::vector<double> p;
    double largest = -1e300, sum = 0;
    for (int64_t j = 0; j < seq_len; ++j) {
      double s = 0;
      for (int64_t i = 0; i < d_key; ++i) {
        s += double{query[i]} * keys[j * (d_key + 3) + i];
      }
      p.push_back(cap > 0 ? cap * std::tanh(scale * s / cap) : scale * s);
      largest = std::max(largest, p.back());
    }
    if (sink != nullptr) {
      largest = std::max(largest, double{*sink});
      sum = std::exp(*sink - largest);
    }
    for (double& x : p) sum += x = std::exp(x - largest);
    std::vector<double> out(d_value);
    for (int64_t j = 0; j < seq_len; ++j) {
      for (int64_t i = 0; i < d_value; ++i) {
        out[i] += p[j] / sum * values[j * (d_value + 2) + i];
      }
    }
    return out;
  }
};

TEST_P(SoftmaxAttentionTest, MatchesTheDoubleReference) {
  for (const int64_t seq_len : {1, 2, 3, 4, 5, 16, 17, 63, 130, 500}) {
    for (const auto& [d_key, d_value] : std::vector<std::pair<int, int>>{
             {1, 1}, {3, 5}, {16, 16}, {20, 33}, {64, 64}, {33, 70}}) {
      const Problem p(seq_len, d_key, d_value);
      const float scale = 1.0f / std::sqrt(static_cast<float>(d_key));
      const std::vector<double> want = p.Reference(scale);
      const std::vector<float> got = p.Run(scale);
      for (int64_t i = 0; i < d_value; ++i) {
        ASSERT_NEAR(want[i], got[i], 3e-6)
            << "seq_len " << seq_len << " d_key " << d_key << " column " << i;
      }
    }
  }
}

TEST_P(SoftmaxAttentionTest, CapAndSinkMatchTheDoubleReference) {
  const float low = -3.0f, high = 20.0f;
  for (const float* sink : {static_cast<const float*>(nullptr), &low, &high}) {
    for (const float cap : {0.0f, 0.7f, 30.0f}) {
      for (const int64_t seq_len : {1, 2, 5, 16, 17, 130}) {
        const Problem p(seq_len, 20, 33, 3.0);
        SCOPED_TRACE(::testing::Message()
                     << "cap " << cap << " seq_len " << seq_len << " sink "
                     << (sink != nullptr ? *sink : 0));
        const std::vector<double> want = p.Reference(0.25, cap, sink);
        const std::vector<float> got =
            p.Run(SoftmaxStepOptions{0.25f, cap, sink});
        for (int64_t i = 0; i < 33; ++i) ASSERT_NEAR(want[i], got[i], 5e-6);
      }
    }
  }
}

// A cap hides no NaN, and a huge score is the cap itself.
TEST_P(SoftmaxAttentionTest, CapKeepsNaNAndBoundsInfinity) {
  Problem p(23, 5, 3);
  p.keys[21 * (p.d_key + 3) + 2] = kNaN;
  for (float x : p.Run(SoftmaxStepOptions{0.5f, 2.0f})) {
    EXPECT_TRUE(std::isnan(x));
  }
  const Problem large(40, 16, 8, 1e30);
  const std::vector<double> want = large.Reference(1.0, 5.0);
  const std::vector<float> got = large.Run(SoftmaxStepOptions{1.0f, 5.0f});
  for (int64_t i = 0; i < 8; ++i) EXPECT_NEAR(want[i], got[i], 1e-5);
}

TEST_P(SoftmaxAttentionTest, LargeScoresDoNotOverflow) {
  const Problem p(40, 16, 8, 1000.0);
  const std::vector<double> want = p.Reference(1.0);
  const std::vector<float> got = p.Run(1.0f);
  // Scores near 1000 carry absolute errors near 1e-4, and weights follow.
  for (int64_t i = 0; i < 8; ++i) EXPECT_NEAR(want[i], got[i], 2e-3);
}

TEST_P(SoftmaxAttentionTest, NaNKeyMakesTheResultNaN) {
  for (const int64_t at : {0, 7, 21, 22}) {
    Problem p(23, 5, 3);
    p.keys[at * (p.d_key + 3) + 2] = kNaN;
    for (float x : p.Run(0.5f)) EXPECT_TRUE(std::isnan(x)) << "key " << at;
  }
}

// Prefetching reads nothing: the same bits, whatever comes after the rows.
TEST_P(SoftmaxAttentionTest, FetchingAheadChangesNoBit) {
  for (const int64_t seq_len : {1, 2, 5, 40, 131}) {
    for (const int64_t d_value : {1, 16, 33, 70}) {
      const Problem p(seq_len, 20, d_value);
      const std::vector<float> want = p.Run(0.5f);
      EXPECT_EQ(want, p.Run(0.5f, true));
      EXPECT_EQ(want, p.Run(0.5f, true, p.values.data()));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, SoftmaxAttentionTest,
                         ::testing::ValuesIn(SimdTargets()));

}  // namespace
}  // namespace tarn
