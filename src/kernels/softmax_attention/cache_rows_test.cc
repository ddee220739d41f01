// Rows of caches against their definition in double, and the step over them
// against the same step over a float32 cache of their numbers: the same bits.
#include "kernels/softmax_attention/cache_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/error.h"
#include "core/rng.h"
#include "kernels/simd_target.h"
#include "kernels/softmax_attention/softmax_attention.h"

namespace tarn {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr CacheType kRounded[] = {CacheType::kBF16, CacheType::kInt8};

// The nearest multiple of `unit`, ties to even; |x| / unit below 2^52.
double Nearest(double x, double unit) {
  const double q = x / unit, down = std::floor(q), part = q - down;
  const bool up = part > 0.5 || (part == 0.5 && std::fmod(down, 2.0) != 0.0);
  return (down + (up ? 1 : 0)) * unit;
}

// The largest number with so many significant bits that is at most x > 0.
double Truncated(double x, int bits) {
  const double unit = std::ldexp(1.0, std::ilogb(x) - bits + 1);
  return std::floor(x / unit) * unit;
}

// What the definitions of cache_rows.h make of finite, normal numbers.
std::vector<double> Reference(CacheType type, const std::vector<float>& x) {
  std::vector<double> y;
  if (type == CacheType::kBF16) {
    for (const double v : x) {
      y.push_back(v == 0 ? 0 : Nearest(v, std::ldexp(1.0, std::ilogb(v) - 7)));
    }
    return y;
  }
  for (size_t begin = 0; begin < x.size(); begin += 32) {
    const size_t end = std::min(x.size(), begin + 32);
    float most = 0;
    for (size_t i = begin; i < end; ++i) most = std::max(most, std::fabs(x[i]));
    const double d = most > 0 ? Truncated(most / 127.0f, 16) : 0;
    for (size_t i = begin; i < end; ++i) {
      // The quotient is a float32.
      const double q = d > 0 ? Nearest(x[i] / static_cast<float>(d), 1.0) : 0.0;
      y.push_back(d * q);
    }
  }
  return y;
}

std::vector<float> Stored(CacheType type, const std::vector<float>& x) {
  const int64_t width = static_cast<int64_t>(x.size());
  const int64_t words = CacheRowWords(type, width);
  std::vector<float> row(static_cast<size_t>(words) + 1, kNaN);
  row.back() = 77.0f;
  StoreCacheRow(type, x.data(), width, row.data());
  EXPECT_EQ(77.0f, row.back());
  row.pop_back();
  return row;
}

std::vector<float> Loaded(CacheType type, const std::vector<float>& row,
                          int64_t width) {
  std::vector<float> x(static_cast<size_t>(width) + 1, 77.0f);
  LoadCacheRow(type, row.data(), width, x.data());
  EXPECT_EQ(77.0f, x.back());
  x.pop_back();
  return x;
}

std::vector<float> RandomRow(int64_t width, uint64_t seed, double size = 1) {
  Rng rng(seed);
  std::vector<float> x;
  for (int64_t i = 0; i < width; ++i) {
    x.push_back(static_cast<float>(size * rng.Normal()));
  }
  return x;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * 4) == 0);
}

TEST(CacheRowsTest, Words) {
  for (const CacheType type : kCacheTypes) EXPECT_EQ(0, CacheRowWords(type, 0));
  EXPECT_EQ(7, CacheRowWords(CacheType::kF32, 7));
  EXPECT_EQ(4, CacheRowWords(CacheType::kBF16, 7));
  EXPECT_EQ(4, CacheRowWords(CacheType::kBF16, 8));
  EXPECT_EQ(2, CacheRowWords(CacheType::kInt8, 1));
  EXPECT_EQ(3, CacheRowWords(CacheType::kInt8, 7));
  EXPECT_EQ(9, CacheRowWords(CacheType::kInt8, 32));
  EXPECT_EQ(11, CacheRowWords(CacheType::kInt8, 33));
  EXPECT_EQ(36, CacheRowWords(CacheType::kInt8, 128));
}

TEST(CacheRowsTest, AreTheirDefinition) {
  for (int64_t width = 0; width <= 130; ++width) {
    for (const double size : {1e-12, 1.0, 300.0, 1e20}) {
      std::vector<float> x =
          RandomRow(width, static_cast<uint64_t>(width + 1), size);
      if (width > 40) std::fill_n(x.begin() + 32, 5, 0.0f);
      for (const CacheType type : kRounded) {
        const std::vector<float> row = Stored(type, x);
        const std::vector<float> got = Loaded(type, row, width);
        const std::vector<double> want = Reference(type, x);
        for (size_t i = 0; i < x.size(); ++i) {
          ASSERT_EQ(want[i], got[i]) << Name(type) << " " << width << " " << i;
        }
        // What was read back is stored as it was.
        EXPECT_TRUE(SameBits(row, Stored(type, got)));
      }
      EXPECT_TRUE(SameBits(x, Stored(CacheType::kF32, x)));
      EXPECT_TRUE(SameBits(x, Loaded(CacheType::kF32, x, width)));
    }
  }
}

TEST(CacheRowsTest, ErrorsAreBounded) {
  const std::vector<float> x = RandomRow(4096, 5);
  const std::vector<float> bf16 =
      Loaded(CacheType::kBF16, Stored(CacheType::kBF16, x), 4096);
  const std::vector<float> int8 =
      Loaded(CacheType::kInt8, Stored(CacheType::kInt8, x), 4096);
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_LE(std::fabs(bf16[i] - x[i]), std::fabs(x[i]) * 0x1p-8f);
    float most = 0;
    for (size_t j = i / 32 * 32; j < i / 32 * 32 + 32; ++j) {
      most = std::max(most, std::fabs(x[j]));
    }
    EXPECT_LE(std::fabs(int8[i] - x[i]), 0.505f * most / 127.0f);
  }
}

TEST(CacheRowsTest, TiesGoToEven) {
  // The scale is 1: the largest number is 127.
  const std::vector<float> x = {127, 0.5, 1.5, -2.5, 126.5, -0.5};
  const std::vector<float> want = {127, 0, 2, -2, 126, 0};
  EXPECT_EQ(want, Loaded(CacheType::kInt8, Stored(CacheType::kInt8, x), 6));
}

TEST(CacheRowsTest, NumbersAtTheEndsOfTheRange) {
  const float most = std::numeric_limits<float>::max();
  const float least = std::numeric_limits<float>::denorm_min();
  const std::vector<float> large = {most, -most, most / 300, 0};
  const std::vector<float> got =
      Loaded(CacheType::kInt8, Stored(CacheType::kInt8, large), 4);
  EXPECT_NEAR(got[0] / most, 1.0f, 1e-4f);
  EXPECT_EQ(got[0], -got[1]);
  EXPECT_NEAR(got[2] / most, 0.0f, 0.004f);
  // What is too small for a scale is 0.
  const std::vector<float> small = {least, -least, 100 * least};
  EXPECT_EQ(std::vector<float>(3),
            Loaded(CacheType::kInt8, Stored(CacheType::kInt8, small), 3));
  for (const float bad : {kNaN, kInf, -kInf}) {
    std::vector<float> x = RandomRow(70, 9);
    x[40] = bad;
    const std::vector<float> int8 =
        Loaded(CacheType::kInt8, Stored(CacheType::kInt8, x), 70);
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_EQ(i / 32 == 1, std::isnan(int8[i])) << i;
    }
    const std::vector<float> bf16 =
        Loaded(CacheType::kBF16, Stored(CacheType::kBF16, x), 70);
    EXPECT_TRUE(std::isnan(bad) ? std::isnan(bf16[40]) : bf16[40] == bad);
  }
}

TEST(CacheTypeTest, Words) {
  EXPECT_EQ((std::vector<std::string>{"f32", "bf16", "int8"}),
            CacheTypeWords());
  for (const CacheType type : kCacheTypes) {
    EXPECT_EQ(type, ParseCacheType("--cache", Name(type)));
  }
  try {
    ParseCacheType("--cache", "int4");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_STREQ("--cache: want one of 'f32', 'bf16', 'int8', got 'int4'",
                 error.what());
  }
}

class CacheStepTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ForceSimdTarget(GetParam()); }
  void TearDown() override { ResetSimdTarget(); }
};

// A cache of one type, with NaN between its rows and after them, and what it
// holds as float32.
struct RoundedCache {
  CacheType type;
  int64_t seq_len, width, stride;
  std::vector<float> words, floats;

  RoundedCache(CacheType type, int64_t seq_len, int64_t width, uint64_t seed)
      : type(type),
        seq_len(seq_len),
        width(width),
        stride(CacheRowWords(type, width) + 1),
        words(static_cast<size_t>(seq_len * stride), kNaN) {
    for (int64_t j = 0; j < seq_len; ++j) {
      const auto row = RandomRow(width, seed + static_cast<uint64_t>(j));
      StoreCacheRow(type, row.data(), width, words.data() + j * stride);
      const std::vector<float> held = Loaded(
          type, {words.begin() + j * stride, words.begin() + (j + 1) * stride},
          width);
      floats.insert(floats.end(), held.begin(), held.end());
    }
  }
};

std::vector<float> Attend(KeyValueCache cache, const std::vector<float>& query,
                          const SoftmaxStepOptions& options) {
  std::vector<float> scores(static_cast<size_t>(cache.seq_len), kNaN);
  std::vector<float> out(static_cast<size_t>(cache.d_value) + 1, 77.0f);
  SoftmaxAttentionStep(query.data(), cache, options, scores.data(), out.data());
  EXPECT_EQ(77.0f, out.back());
  out.pop_back();
  return out;
}

TEST_P(CacheStepTest, GivesTheBitsOfItsNumbers) {
  const float sink = 0.3f;
  const SoftmaxStepOptions plain = {0.25f}, all = {0.25f, 3.0f, &sink};
  for (const CacheType type : kRounded) {
    for (const int64_t seq_len : {1, 2, 5, 17, 130}) {
      for (const auto& [d_key, d_value] : std::vector<std::pair<int, int>>{
               {1, 1}, {3, 5}, {20, 33}, {32, 64}, {64, 128}, {130, 7}}) {
        const RoundedCache keys(type, seq_len, d_key, 1);
        const RoundedCache values(type, seq_len, d_value, 1000);
        const auto query = RandomRow(d_key, 7);
        KeyValueCache rounded = {.keys = keys.words.data(),
                                 .values = values.words.data(),
                                 .key_stride = keys.stride,
                                 .value_stride = values.stride,
                                 .seq_len = seq_len,
                                 .d_key = d_key,
                                 .d_value = d_value,
                                 .type = type};
        const KeyValueCache floats = {.keys = keys.floats.data(),
                                      .values = values.floats.data(),
                                      .key_stride = d_key,
                                      .value_stride = d_value,
                                      .seq_len = seq_len,
                                      .d_key = d_key,
                                      .d_value = d_value};
        for (const SoftmaxStepOptions& options : {plain, all}) {
          const auto want = Attend(floats, query, options);
          EXPECT_EQ(want, Attend(rounded, query, options))
              << Name(type) << " " << seq_len << " " << d_key << " " << d_value;
          rounded.streams = true;
          rounded.next = keys.words.data();
          EXPECT_EQ(want, Attend(rounded, query, options));
          rounded.streams = false;
        }
      }
    }
  }
}

// Values that are the first numbers of the rows of keys, as latent attention
// has them, at every width.
TEST_P(CacheStepTest, ValuesMayBeTheBeginningOfKeys) {
  for (const CacheType type : kRounded) {
    for (const int64_t width : {9, 33, 72, 100}) {
      const RoundedCache rows(type, 23, width, 3);
      const auto query = RandomRow(width, 8);
      for (const int64_t d_value : {int64_t{1}, width / 2, width - 2, width}) {
        const KeyValueCache rounded = {.keys = rows.words.data(),
                                       .values = rows.words.data(),
                                       .key_stride = rows.stride,
                                       .value_stride = rows.stride,
                                       .seq_len = 23,
                                       .d_key = width,
                                       .d_value = d_value,
                                       .type = type};
        const KeyValueCache floats = {.keys = rows.floats.data(),
                                      .values = rows.floats.data(),
                                      .key_stride = width,
                                      .value_stride = width,
                                      .seq_len = 23,
                                      .d_key = width,
                                      .d_value = d_value};
        EXPECT_EQ(Attend(floats, query, {0.2f}), Attend(rounded, query, {0.2f}))
            << Name(type) << " " << width << " " << d_value;
      }
    }
  }
}

TEST_P(CacheStepTest, ANaNRowMakesTheResultNaN) {
  for (const CacheType type : kRounded) {
    RoundedCache keys(type, 23, 5, 1);
    const RoundedCache values(type, 23, 3, 2);
    std::vector<float> row = RandomRow(5, 1);
    row[2] = kNaN;
    StoreCacheRow(type, row.data(), 5, keys.words.data() + 21 * keys.stride);
    const KeyValueCache cache = {.keys = keys.words.data(),
                                 .values = values.words.data(),
                                 .key_stride = keys.stride,
                                 .value_stride = values.stride,
                                 .seq_len = 23,
                                 .d_key = 5,
                                 .d_value = 3,
                                 .type = type};
    for (const float x : Attend(cache, RandomRow(5, 4), {0.5f})) {
      EXPECT_TRUE(std::isnan(x)) << Name(type);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, CacheStepTest,
                         ::testing::ValuesIn(SimdTargets()));

}  // namespace
}  // namespace tarn
