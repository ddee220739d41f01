#include "kernels/hash/hash.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/error.h"
#include "core/executor.h"
#include "core/rng.h"
#include "kernels/hash/hash_ref.h"

namespace tarn {
namespace {

constexpr int64_t kBatch = 2, kHeads = 3;

template <typename T>
struct Problem {
  int64_t seq_len, d_key;
  std::vector<T> queries;
  std::vector<int64_t> lengths;

  Problem(int64_t seq_len, int64_t d_key)
      : seq_len(seq_len),
        d_key(d_key),
        queries(kBatch * seq_len * kHeads * d_key),
        lengths{seq_len, seq_len / 2} {
    Rng rng(seq_len * 100 + d_key);
    for (T& x : queries) x = static_cast<T>(rng.Normal());
  }
  HashRows<T> rows(bool ragged = true) const {
    return {queries.data(), ragged ? lengths.data() : nullptr,
            kBatch,         seq_len,
            kHeads,         d_key};
  }
  // The first `count` rows of one sequence and head.
  Rows Plane(int64_t plane, int64_t count) const {
    Rows rows;
    for (int64_t t = 0; t < count; ++t) {
      const T* row =
          queries.data() +
          ((plane / kHeads * seq_len + t) * kHeads + plane % kHeads) * d_key;
      rows.emplace_back(row, row + d_key);
    }
    return rows;
  }
};

template <typename T>
class HashTest : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(HashTest, Types);

TYPED_TEST(HashTest, ClustersFollowTheirDefinition) {
  SerialExecutor executor;
  for (const int64_t seq_len : {0, 1, 7, 40}) {
    for (const int64_t d_key : {1, 5, 16}) {
      const Problem<TypeParam> problem(seq_len, d_key);
      for (const ClusterOptions& options :
           {ClusterOptions{}, ClusterOptions{4, 5, 63, true, 3},
            ClusterOptions{4, 5, 8, false, 3}, ClusterOptions{9, 3, 2, true, 1},
            ClusterOptions{100, 2, 20, true, -7}}) {
        std::vector<int64_t> got(kBatch * kHeads * seq_len, -99);
        ClusterQueries(problem.rows(), options, got.data(), executor);
        for (int64_t plane = 0; plane < kBatch * kHeads; ++plane) {
          const int64_t length = problem.lengths[plane / kHeads];
          std::vector<int64_t> wanted =
              ReferenceClusters(problem.Plane(plane, length), options);
          wanted.resize(seq_len, -1);
          EXPECT_EQ(wanted,
                    std::vector<int64_t>(got.begin() + plane * seq_len,
                                         got.begin() + (plane + 1) * seq_len));
        }
      }
    }
  }
}

TYPED_TEST(HashTest, BucketsFollowTheirDefinition) {
  SerialExecutor executor;
  for (const int64_t seq_len : {0, 1, 33}) {
    for (const int64_t bits : {1, 3, 63}) {
      const Problem<TypeParam> problem(seq_len, 6);
      const int64_t rounds = 2;
      std::vector<int32_t> got(kBatch * kHeads * rounds * seq_len, -99);
      HashBuckets(problem.rows(), bits, rounds, 5, got.data(), executor);
      for (int64_t task = 0; task < kBatch * kHeads * rounds; ++task) {
        const std::vector<int32_t> wanted = ReferenceBuckets(
            problem.Plane(task / rounds, seq_len), bits, task % rounds, 5);
        EXPECT_EQ(wanted,
                  std::vector<int32_t>(got.begin() + task * seq_len,
                                       got.begin() + (task + 1) * seq_len));
      }
    }
  }
}

TEST(Hash, SameForAnyNumberOfThreads) {
  const Problem<float> problem(50, 8);
  const ClusterOptions options = {6, 4, 30, true, 2};
  std::vector<int64_t> wanted(kBatch * kHeads * 50);
  SerialExecutor serial;
  ClusterQueries(problem.rows(), options, wanted.data(), serial);
  for (const int threads : {2, 3, 8}) {
    ThreadPool team(threads);
    std::vector<int64_t> got(wanted.size());
    ClusterQueries(problem.rows(), options, got.data(), team);
    EXPECT_EQ(got, wanted);
  }
}

TEST(Hash, RefusesBeforeAnyWork) {
  const Problem<float> problem(4, 2);
  SerialExecutor executor;
  std::vector<int64_t> clusters(kBatch * kHeads * 4, -99);
  std::vector<int32_t> buckets(clusters.size(), -99);
  for (const ClusterOptions& options :
       {ClusterOptions{0, 1, 8}, ClusterOptions{1, 0, 8},
        ClusterOptions{1, 1, 0}, ClusterOptions{1, 1, 64}}) {
    EXPECT_THROW(
        ClusterQueries(problem.rows(), options, clusters.data(), executor),
        ArgumentError);
  }
  for (const int64_t bad : {-1, 5}) {
    Problem<float> ragged(4, 2);
    ragged.lengths[1] = bad;
    EXPECT_THROW(ClusterQueries(ragged.rows(), {}, clusters.data(), executor),
                 ArgumentError);
  }
  EXPECT_THROW(HashBuckets(problem.rows(), 0, 1, 0, buckets.data(), executor),
               ArgumentError);
  EXPECT_THROW(HashBuckets(problem.rows(), 1, 0, 0, buckets.data(), executor),
               ArgumentError);
  EXPECT_EQ(clusters, std::vector<int64_t>(clusters.size(), -99));
  EXPECT_EQ(buckets, std::vector<int32_t>(buckets.size(), -99));
}

}  // namespace
}  // namespace tarn
