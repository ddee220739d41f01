// Compensation against its definition: after each column the others take the
// step that minimises the squared error of the outputs, by the inverse of the
// moments of the columns that are left, which is computed anew each time.
#include "runtime/quantise/compensate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "core/groups/round_group.h"
#include "core/rng.h"

namespace tarn {
namespace {

using Matrix = std::vector<std::vector<double>>;

Matrix Inverse(Matrix a) {
  const size_t n = a.size();
  Matrix inverse(n, std::vector<double>(n));
  for (size_t i = 0; i < n; ++i) inverse[i][i] = 1;
  for (size_t i = 0; i < n; ++i) {
    size_t pivot = i;
    for (size_t r = i; r < n; ++r) {
      if (std::fabs(a[r][i]) > std::fabs(a[pivot][i])) pivot = r;
    }
    std::swap(a[i], a[pivot]);
    std::swap(inverse[i], inverse[pivot]);
    for (size_t r = 0; r < n; ++r) {
      if (r == i) continue;
      const double factor = a[r][i] / a[i][i];
      for (size_t c = 0; c < n; ++c) {
        a[r][c] -= factor * a[i][c];
        inverse[r][c] -= factor * inverse[i][c];
      }
    }
    const double own = a[i][i];
    for (size_t c = 0; c < n; ++c) {
      a[i][c] /= own;
      inverse[i][c] /= own;
    }
  }
  return inverse;
}

struct Problem {
  int64_t tokens, inputs, rows;
  std::vector<float> x, w;
};

// Inputs that depend on one another, of unequal size.
Problem Made(int64_t tokens, int64_t inputs, int64_t rows, uint64_t seed) {
  Rng rng(seed);
  Problem p = {tokens, inputs, rows, {}, {}};
  const int64_t rank = inputs / 3 + 1;
  std::vector<double> mix(static_cast<size_t>(rank * inputs));
  for (double& m : mix) m = rng.Normal();
  for (int64_t t = 0; t < tokens; ++t) {
    std::vector<double> z(static_cast<size_t>(rank));
    for (double& v : z) v = rng.Normal();
    for (int64_t i = 0; i < inputs; ++i) {
      double sum = 0.3 * rng.Normal();
      for (int64_t k = 0; k < rank; ++k) {
        sum += z[static_cast<size_t>(k)] *
               mix[static_cast<size_t>(k * inputs + i)];
      }
      p.x.push_back(static_cast<float>(sum * (1 + static_cast<double>(i % 5))));
    }
  }
  for (int64_t i = 0; i < rows * inputs; ++i) {
    p.w.push_back(static_cast<float>(rng.Normal()));
  }
  return p;
}

InputMoments MomentsOf(const Problem& p, Executor& executor) {
  InputMoments moments(p.inputs);
  moments.Add(p.x.data(), p.inputs, p.tokens, executor);
  moments.Finish(executor);
  return moments;
}

// By the definition; one row.
std::vector<uint8_t> Plain(const Problem& p, int64_t row, double lambda,
                           const GroupScheme& scheme) {
  const size_t n = static_cast<size_t>(p.inputs);
  Matrix h(n, std::vector<double>(n));
  for (int64_t t = 0; t < p.tokens; ++t) {
    const float* x = p.x.data() + t * p.inputs;
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) {
        h[i][j] += static_cast<double>(x[i]) * static_cast<double>(x[j]) /
                   static_cast<double>(p.tokens);
      }
    }
  }
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return h[a][a] > h[b][b]; });
  double mean = 0;
  for (size_t i = 0; i < n; ++i) mean += h[i][i] / static_cast<double>(n);
  for (size_t i = 0; i < n; ++i) {
    h[i][i] = h[i][i] == 0 ? 1 : h[i][i] + lambda * mean;
  }
  const float* w = p.w.data() + row * p.inputs;
  std::vector<double> left(w, w + n);
  std::vector<uint8_t> blocks(static_cast<size_t>(scheme.RowBytes(p.inputs)));
  for (int64_t g = 0; g < scheme.Blocks(p.inputs); ++g) {
    RoundGroup(w + g * scheme.group,
               std::min(scheme.group, p.inputs - g * scheme.group), scheme,
               blocks.data() + g * scheme.BlockBytes());
  }
  for (size_t done = 0; done < n; ++done) {
    const std::vector<size_t> rest(order.begin() + static_cast<int64_t>(done),
                                   order.end());
    Matrix own(rest.size(), std::vector<double>(rest.size()));
    for (size_t i = 0; i < rest.size(); ++i) {
      for (size_t j = 0; j < rest.size(); ++j) own[i][j] = h[rest[i]][rest[j]];
    }
    const Matrix inverse = Inverse(own);
    const size_t column = rest[0];
    uint8_t* block = blocks.data() + static_cast<int64_t>(column) /
                                         scheme.group * scheme.BlockBytes();
    const float d = GroupScale(block), m = GroupMinimum(scheme, block);
    const int64_t at = static_cast<int64_t>(column) % scheme.group;
    const double value = scheme.minimum
                             ? (left[column] - static_cast<double>(m)) / d
                             : left[column] / d + scheme.Offset();
    const int low = scheme.bits == 8 ? -127 : 0;
    const int code =
        d == 0 ? scheme.Offset()
               : static_cast<int>(std::clamp<double>(std::nearbyint(value), low,
                                                     scheme.HighestCode()));
    SetGroupCode(scheme, at, code, block);
    const double error =
        left[column] - static_cast<double>(GroupValue(scheme, d, m, code));
    for (size_t i = 0; i < rest.size(); ++i) {
      left[rest[i]] -= error * inverse[i][0] / inverse[0][0];
    }
  }
  return blocks;
}

// Mean square of X (W - rounded)^T.
double OutputError(const Problem& p, const std::vector<uint8_t>& blocks,
                   const GroupScheme& scheme) {
  double sum = 0;
  std::vector<float> rounded(static_cast<size_t>(p.inputs));
  for (int64_t r = 0; r < p.rows; ++r) {
    for (int64_t g = 0; g < scheme.Blocks(p.inputs); ++g) {
      DecodeGroup(scheme,
                  blocks.data() + r * scheme.RowBytes(p.inputs) +
                      g * scheme.BlockBytes(),
                  std::min(scheme.group, p.inputs - g * scheme.group),
                  rounded.data() + g * scheme.group);
    }
    for (int64_t t = 0; t < p.tokens; ++t) {
      double out = 0;
      for (int64_t i = 0; i < p.inputs; ++i) {
        out +=
            (static_cast<double>(p.w[static_cast<size_t>(r * p.inputs + i)]) -
             static_cast<double>(rounded[static_cast<size_t>(i)])) *
            static_cast<double>(p.x[static_cast<size_t>(t * p.inputs + i)]);
      }
      sum += out * out;
    }
  }
  return sum;
}

constexpr GroupScheme kSchemes[] = {{8, 32, false}, {8, 64, false},
                                    {4, 32, false}, {4, 128, false},
                                    {4, 32, true},  {4, 64, true}};

TEST(Compensation, IsWhatItsDefinitionSays) {
  SerialExecutor serial;
  for (const GroupScheme& scheme : kSchemes) {
    for (const int64_t inputs : {1, 2, 31, 33, 66}) {
      const Problem p = Made(100, inputs, 3, static_cast<uint64_t>(inputs));
      const Compensation compensation(MomentsOf(p, serial), 0.01, serial);
      const int64_t bytes = scheme.RowBytes(inputs);
      std::vector<uint8_t> blocks(static_cast<size_t>(p.rows * bytes), 0xAB);
      compensation.Round(p.w.data(), p.rows, scheme, blocks.data());
      for (int64_t r = 0; r < p.rows; ++r) {
        EXPECT_EQ(std::vector<uint8_t>(blocks.begin() + r * bytes,
                                       blocks.begin() + (r + 1) * bytes),
                  Plain(p, r, 0.01, scheme))
            << scheme.bits << " " << scheme.group << " " << inputs << " " << r;
      }
    }
  }
}

// More columns than are rounded before others change.
TEST(Compensation, ChangesLaterColumnsAtOnce) {
  SerialExecutor serial;
  const GroupScheme scheme = {4, 32, false};
  const Problem p = Made(300, 132, 1, 3);
  const Compensation compensation(MomentsOf(p, serial), 0.01, serial);
  const int64_t bytes = scheme.RowBytes(p.inputs);
  std::vector<uint8_t> blocks(static_cast<size_t>(p.rows * bytes));
  compensation.Round(p.w.data(), p.rows, scheme, blocks.data());
  std::vector<uint8_t> want;
  for (int64_t r = 0; r < p.rows; ++r) {
    for (const uint8_t byte : Plain(p, r, 0.01, scheme)) want.push_back(byte);
  }
  EXPECT_EQ(blocks, want);
}

TEST(Compensation, HalvesTheErrorOfNearestRounding) {
  SerialExecutor serial;
  for (const GroupScheme& scheme : kSchemes) {
    const Problem p = Made(1000, 96, 40, 9);
    const Compensation compensation(MomentsOf(p, serial), 0.01, serial);
    const int64_t bytes = scheme.RowBytes(p.inputs);
    std::vector<uint8_t> blocks(static_cast<size_t>(p.rows * bytes));
    std::vector<uint8_t> nearest = blocks;
    compensation.Round(p.w.data(), p.rows, scheme, blocks.data());
    for (int64_t r = 0; r < p.rows; ++r) {
      for (int64_t g = 0; g < scheme.Blocks(p.inputs); ++g) {
        RoundGroup(p.w.data() + r * p.inputs + g * scheme.group,
                   std::min(scheme.group, p.inputs - g * scheme.group), scheme,
                   nearest.data() + r * bytes + g * scheme.BlockBytes());
      }
    }
    EXPECT_LT(OutputError(p, blocks, scheme),
              OutputError(p, nearest, scheme) / 4);  // half of the size
  }
}

// Columns that no input reaches are rounded to nearest, and so are all without
// any input.
TEST(Compensation, RoundsDeadColumnsToNearest) {
  SerialExecutor serial;
  const GroupScheme scheme = {4, 32, false};
  Problem p = Made(100, 40, 3, 4);
  for (int64_t t = 0; t < p.tokens; ++t) {
    for (const int64_t dead : {0, 7, 39}) {
      p.x[static_cast<size_t>(t * p.inputs + dead)] = 0;
    }
  }
  const int64_t bytes = scheme.RowBytes(p.inputs);
  std::vector<uint8_t> blocks(static_cast<size_t>(p.rows * bytes));
  std::vector<uint8_t> nearest = blocks;
  for (int64_t r = 0; r < p.rows; ++r) {
    for (int64_t g = 0; g < 2; ++g) {
      RoundGroup(p.w.data() + r * p.inputs + g * 32, g == 0 ? 32 : 8, scheme,
                 nearest.data() + r * bytes + g * scheme.BlockBytes());
    }
  }
  Compensation(MomentsOf(p, serial), 0.01, serial)
      .Round(p.w.data(), p.rows, scheme, blocks.data());
  EXPECT_NE(blocks, nearest);
  for (int64_t r = 0; r < p.rows; ++r) {
    for (const int64_t dead : {0, 7, 39}) {
      const int64_t at = r * bytes + dead / 32 * scheme.BlockBytes();
      EXPECT_EQ(GroupCode(scheme, blocks.data() + at, dead % 32),
                GroupCode(scheme, nearest.data() + at, dead % 32));
    }
  }
  InputMoments none(p.inputs);
  none.Finish(serial);
  Compensation(none, 0.01, serial)
      .Round(p.w.data(), p.rows, scheme, blocks.data());
  EXPECT_EQ(blocks, nearest);
}

TEST(Compensation, HasTheSameBitsForAnyExecutor) {
  const GroupScheme scheme = {4, 64, true};
  const Problem p = Made(1500, 130, 20, 5);
  std::vector<std::vector<uint8_t>> results;
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    const InputMoments moments = MomentsOf(p, pool);
    const Compensation compensation(moments, 0.01, pool);
    results.emplace_back(
        static_cast<size_t>(p.rows * scheme.RowBytes(p.inputs)));
    compensation.Round(p.w.data(), p.rows, scheme, results.back().data());
    EXPECT_EQ(results.back(), results.front()) << threads;
  }
}

TEST(Compensation, RefusesInputsThatAreNoNumbers) {
  SerialExecutor serial;
  Problem p = Made(100, 40, 3, 4);
  p.x[50] = NAN;
  EXPECT_THROW(Compensation(MomentsOf(p, serial), 0.01, serial), NumericError);
}

TEST(InputMoments, AreTheSumsOfProducts) {
  SerialExecutor serial;
  const Problem p = Made(1100, 37, 1, 6);
  InputMoments moments(p.inputs);
  for (int64_t t = 0; t < p.tokens; t += 100) {  // some at a time
    moments.Add(p.x.data() + t * p.inputs, p.inputs, 100, serial);
  }
  moments.Finish(serial);
  EXPECT_EQ(moments.count(), p.tokens);
  for (int64_t i = 0; i < p.inputs; ++i) {
    for (int64_t j = 0; j < p.inputs; ++j) {
      double want = 0, size = 0;
      for (int64_t t = 0; t < p.tokens; ++t) {
        const double product =
            static_cast<double>(p.x[static_cast<size_t>(t * p.inputs + i)]) *
            static_cast<double>(p.x[static_cast<size_t>(t * p.inputs + j)]);
        want += product;
        size += std::fabs(product);
      }
      EXPECT_NEAR(moments.sums()[static_cast<size_t>(i * p.inputs + j)], want,
                  1e-6 * size);  // float32 sums of 128 products
    }
  }
}

}  // namespace
}  // namespace tarn
