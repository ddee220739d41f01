// Several queries at once: each has the bits that it has alone, and those of a
// sum in double precision but for its rounding.
#include "kernels/softmax_attention/softmax_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "core/rng.h"
#include "kernels/simd_target.h"
#include "kernels/softmax_attention/cache_rows.h"

namespace tarn {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

class SoftmaxRowsTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ForceSimdTarget(GetParam()); }
  void TearDown() override { ResetSimdTarget(); }
};

// A cache of a type in wider rows, and queries over its beginnings; whatever is
// no part of them is NaN.
struct Case {
  int64_t d_key, d_value, longest;
  CacheType type;
  std::vector<int64_t> seq_lens;
  std::vector<float> queries, keys, values, sinks, plain_keys, plain_values;
  int64_t key_stride, value_stride;

  Case(int64_t d_key, int64_t d_value, std::vector<int64_t> lengths,
       CacheType type, uint64_t seed)
      : d_key(d_key), d_value(d_value), type(type), seq_lens(lengths) {
    Rng rng(seed);
    longest = *std::max_element(lengths.begin(), lengths.end());
    const auto normal = [&](size_t count) {
      std::vector<float> x(count);
      for (float& one : x) one = static_cast<float>(rng.Normal());
      return x;
    };
    queries = normal(static_cast<size_t>(d_key) * lengths.size());
    sinks = normal(lengths.size());
    plain_keys = normal(static_cast<size_t>(longest * d_key));
    plain_values = normal(static_cast<size_t>(longest * d_value));
    key_stride = CacheRowWords(type, d_key) + 3;
    value_stride = CacheRowWords(type, d_value) + 5;
    keys = Stored(plain_keys, d_key, key_stride);
    values = Stored(plain_values, d_value, value_stride);
  }

  std::vector<float> Stored(const std::vector<float>& rows, int64_t width,
                            int64_t stride) const {
    std::vector<float> stored(static_cast<size_t>(longest * stride), kNaN);
    for (int64_t j = 0; j < longest; ++j) {
      StoreCacheRow(type, rows.data() + j * width, width,
                    stored.data() + j * stride);
    }
    return stored;
  }

  KeyValueCache Cache(int64_t seq_len) const {
    return {.keys = keys.data(),
            .values = values.data(),
            .key_stride = key_stride,
            .value_stride = value_stride,
            .seq_len = seq_len,
            .d_key = d_key,
            .d_value = d_value,
            .type = type};
  }
  const float* Query(size_t r) const {
    return queries.data() + static_cast<int64_t>(r) * d_key;
  }

  std::vector<float> Together(const SoftmaxStepOptions& options,
                              bool sinks_too) const {
    const auto width = static_cast<size_t>(d_value + 1);
    std::vector<float> out(width * seq_lens.size(), kNaN);
    std::vector<SoftmaxQuery> all;
    for (size_t r = 0; r < seq_lens.size(); ++r) {
      all.push_back({Query(r), out.data() + r * width, seq_lens[r],
                     sinks_too ? &sinks[r] : nullptr});
    }
    std::vector<float> scratch(
        static_cast<size_t>(SoftmaxRowsFloats(longest, d_value)), kNaN);
    SoftmaxAttentionRows(all, Cache(0), options, scratch.data());
    return out;
  }
  std::vector<float> Alone(SoftmaxStepOptions options, bool sinks_too) const {
    const auto width = static_cast<size_t>(d_value + 1);
    std::vector<float> out(width * seq_lens.size(), kNaN);
    std::vector<float> scores(static_cast<size_t>(longest), kNaN);
    for (size_t r = 0; r < seq_lens.size(); ++r) {
      options.sink = sinks_too ? &sinks[r] : nullptr;
      SoftmaxAttentionStep(Query(r), Cache(seq_lens[r]), options, scores.data(),
                           out.data() + r * width);
    }
    return out;
  }
  std::vector<double> Reference(double scale, size_t r) const {
    std::vector<double> p, out(static_cast<size_t>(d_value));
    double sum = 0;
    for (int64_t j = 0; j < seq_lens[r]; ++j) {
      double s = 0;
      for (int64_t i = 0; i < d_key; ++i) {
        s += double{Query(r)[i]} *
             plain_keys[static_cast<size_t>(j * d_key + i)];
      }
      p.push_back(std::exp(scale * s));
      sum += p.back();
    }
    for (size_t j = 0; j < p.size(); ++j) {
      for (size_t i = 0; i < out.size(); ++i) {
        out[i] += p[j] / sum * plain_values[j * out.size() + i];
      }
    }
    return out;
  }
};

void ExpectSameBits(const std::vector<float>& want,
                    const std::vector<float>& got) {
  ASSERT_EQ(want.size(), got.size());
  ASSERT_EQ(
      0, std::memcmp(want.data(), got.data(), want.size() * sizeof(want[0])));
}

TEST_P(SoftmaxRowsTest, EachHasItsBitsAlone) {
  uint64_t seed = 0;
  for (const CacheType type :
       {CacheType::kF32, CacheType::kBF16, CacheType::kInt8}) {
    for (const auto& [d_key, d_value] : std::vector<std::pair<int, int>>{
             {1, 1}, {3, 17}, {16, 16}, {20, 33}, {64, 64}, {130, 31}}) {
      for (const std::vector<int64_t>& lengths :
           std::vector<std::vector<int64_t>>{{1},
                                             {2, 1},
                                             {5, 5, 5, 5},
                                             {1, 2, 3, 4, 5, 6},
                                             {130, 131, 131},
                                             {257, 256, 255, 300, 1},
                                             {128, 128, 129, 129, 130, 130}}) {
        const Case c(d_key, d_value, lengths, type, ++seed);
        for (const float cap : {0.0f, 2.0f}) {
          for (const bool sinks : {false, true}) {
            const SoftmaxStepOptions options{0.3f, cap};
            SCOPED_TRACE(::testing::Message()
                         << "type " << static_cast<int>(type) << " d_key "
                         << d_key << " d_value " << d_value << " rows "
                         << lengths.size() << " cap " << cap);
            ExpectSameBits(c.Alone(options, sinks), c.Together(options, sinks));
          }
        }
      }
    }
  }
}

TEST_P(SoftmaxRowsTest, MatchesTheDoubleReference) {
  const Case c(20, 33, {200, 201, 202, 203, 204, 205}, CacheType::kF32, 5);
  const std::vector<float> got = c.Together({0.25f}, false);
  for (size_t r = 0; r < c.seq_lens.size(); ++r) {
    const std::vector<double> want = c.Reference(0.25, r);
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(want[i], got[r * 34 + i], 3e-6) << r;
    }
  }
}

TEST_P(SoftmaxRowsTest, NaNOfAKeyReachesThoseWhoSeeIt) {
  Case c(8, 8, {40, 39, 20}, CacheType::kF32, 6);
  c.keys[static_cast<size_t>(39 * c.key_stride + 2)] = kNaN;
  const std::vector<float> got = c.Together({0.5f}, false);
  EXPECT_TRUE(std::isnan(got[0]));
  EXPECT_FALSE(std::isnan(got[9]));
  EXPECT_FALSE(std::isnan(got[18]));
  SoftmaxAttentionRows({}, c.Cache(0), {0.5f}, nullptr);  // no rows, no work
}

INSTANTIATE_TEST_SUITE_P(Targets, SoftmaxRowsTest,
                         ::testing::ValuesIn(SimdTargets()));

}  // namespace
}  // namespace tarn
