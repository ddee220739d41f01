#include "torch_ops/sparse/hash.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <vector>

#include "core/rng.h"
#include "torch_ops/common/executor.h"

namespace tarn::ops {
namespace {

// Streams of one hash_seed; rounds of the reformer count from the last.
enum Stream : uint64_t { kPlanes, kOffsets, kStarts, kEmptyClusters, kRounds };

constexpr int64_t kColumns = 64;  // of a projection: a whole number of vectors
using Projection = std::array<double, kColumns>;

// [d_key, 64] with `bits` Gaussian columns, the rest 0. Drawn column by column,
// so that the first planes are the same for any number of them.
std::vector<double> Gaussian(int64_t d_key, int64_t bits, int64_t hash_seed,
                             uint64_t stream) {
  std::vector<double> matrix(d_key * kColumns);
  Rng rng(static_cast<uint64_t>(hash_seed), stream);
  for (int64_t b = 0; b < bits; ++b) {
    for (int64_t e = 0; e < d_key; ++e) {
      matrix[e * kColumns + b] = rng.Normal();
    }
  }
  return matrix;
}

// Fills the first `bits` entries of the product.
template <typename T>
void Project(const T* query, int64_t d_key, int64_t bits,
             const std::vector<double>& matrix, Projection* product) {
  const int64_t columns = std::min((bits + 7) / 8 * 8, kColumns);
  product->fill(0.0);
  for (int64_t e = 0; e < d_key; ++e) {
    const double x = query[e];
    const double* row = matrix.data() + e * kColumns;
    for (int64_t b = 0; b < columns; ++b) (*product)[b] += x * row[b];
  }
}

// The rows of one sequence and head in [B, T, H, K].
struct Rows {
  int64_t seq_len, heads, d_key;
  explicit Rows(const at::Tensor& queries)
      : seq_len(queries.size(1)),
        heads(queries.size(2)),
        d_key(queries.size(3)) {}
  int64_t At(int64_t plane, int64_t t) const {
    const int64_t row = plane / heads, head = plane % heads;
    return ((row * seq_len + t) * heads + head) * d_key;
  }
};

// K-means over the hashes of one sequence and head.
class HammingKMeans {
 public:
  HammingKMeans(const std::vector<uint64_t>& hashes,
                const ClusterOptions& options)
      : hashes_(hashes),
        options_(options),
        cluster_(hashes.size()),
        centres_(std::min<int64_t>(options.clusters,
                                   static_cast<int64_t>(hashes.size()))) {}

  const std::vector<int64_t>& Run() {
    Start();
    for (int64_t round = 0; round + 1 < options_.iterations; ++round) {
      Assign();
      Update(round);
    }
    Assign();
    return cluster_;
  }

 private:
  // Distinct positions: the first steps of a Fisher-Yates shuffle.
  void Start() {
    Rng rng(static_cast<uint64_t>(options_.hash_seed), kStarts);
    std::vector<size_t> position(hashes_.size());
    std::iota(position.begin(), position.end(), size_t{0});
    for (size_t c = 0; c < centres_.size(); ++c) {
      std::swap(position[c], position[c + rng.Below(position.size() - c)]);
      centres_[c] = hashes_[position[c]];
    }
  }

  void Assign() {
    for (size_t i = 0; i < hashes_.size(); ++i) {
      int nearest = kColumns + 1;
      for (size_t c = 0; c < centres_.size(); ++c) {
        const int distance = std::popcount(hashes_[i] ^ centres_[c]);
        if (distance < nearest) {
          nearest = distance;
          cluster_[i] = static_cast<int64_t>(c);
        }
      }
    }
  }

  void Update(int64_t round) {
    std::vector<int64_t> members(centres_.size());
    std::vector<int64_t> set(centres_.size() * kColumns);  // members with bit b
    for (size_t i = 0; i < hashes_.size(); ++i) {
      ++members[cluster_[i]];
      int64_t* row = set.data() + cluster_[i] * kColumns;
      for (int64_t b = 0; b < options_.bits; ++b) row[b] += hashes_[i] >> b & 1;
    }
    for (size_t c = 0; c < centres_.size(); ++c) {
      centres_[c] = members[c] == 0 ? RandomHash(round, c) : 0;
      for (int64_t b = 0; b < options_.bits && members[c] > 0; ++b) {
        const bool most = 2 * set[c * kColumns + b] > members[c];
        centres_[c] |= static_cast<uint64_t>(most) << b;
      }
    }
  }

  uint64_t RandomHash(int64_t round, size_t cluster) const {
    const uint64_t counter =
        static_cast<uint64_t>(round * options_.clusters) + cluster;
    Rng rng(static_cast<uint64_t>(options_.hash_seed), kEmptyClusters, counter);
    return rng.Next() >> (kColumns - options_.bits);
  }

  const std::vector<uint64_t>& hashes_;
  const ClusterOptions& options_;
  std::vector<int64_t> cluster_;
  std::vector<uint64_t> centres_;
};

template <typename T>
void RunClusterQueries(const at::Tensor& queries, const at::Tensor& lengths,
                       const ClusterOptions& options, int64_t* clusters) {
  const Rows rows(queries);
  const auto planes =
      Gaussian(rows.d_key, options.bits, options.hash_seed, kPlanes);
  Projection offsets{};
  Rng rng(static_cast<uint64_t>(options.hash_seed), kOffsets);
  for (int64_t b = 0; b < options.bits && options.hash_bias; ++b) {
    offsets[b] = rng.Normal();
  }
  const T* data = queries.const_data_ptr<T>();
  TorchExecutor executor;
  executor.ParallelFor(queries.size(0) * rows.heads, [&](int64_t plane, int) {
    const int64_t length =
        lengths.defined()
            ? lengths.const_data_ptr<int64_t>()[plane / rows.heads]
            : rows.seq_len;
    std::vector<uint64_t> hashes(length);
    Projection product;
    for (int64_t t = 0; t < length; ++t) {
      Project(data + rows.At(plane, t), rows.d_key, options.bits, planes,
              &product);
      for (int64_t b = 0; b < options.bits; ++b) {
        hashes[t] |= static_cast<uint64_t>(product[b] > offsets[b]) << b;
      }
    }
    HammingKMeans kmeans(hashes, options);
    const std::vector<int64_t>& cluster = kmeans.Run();
    int64_t* row = clusters + plane * rows.seq_len;
    std::copy(cluster.begin(), cluster.end(), row);
    std::fill(row + length, row + rows.seq_len, int64_t{-1});
  });
}

template <typename T>
void RunHashBuckets(const at::Tensor& queries, int64_t bits, int64_t rounds,
                    int64_t hash_seed, int32_t* buckets) {
  const Rows rows(queries);
  std::vector<std::vector<double>> matrices;
  for (int64_t r = 0; r < rounds; ++r) {
    matrices.push_back(Gaussian(rows.d_key, bits, hash_seed,
                                kRounds + static_cast<uint64_t>(r)));
  }
  const T* data = queries.const_data_ptr<T>();
  TorchExecutor executor;
  const int64_t tasks = queries.size(0) * rows.heads * rounds;
  executor.ParallelFor(tasks, [&](int64_t task, int) {
    const int64_t plane = task / rounds;
    Projection product;
    for (int64_t t = 0; t < rows.seq_len; ++t) {
      Project(data + rows.At(plane, t), rows.d_key, bits,
              matrices[task % rounds], &product);
      int64_t bucket = 0;
      double largest = product[0];
      for (int64_t b = 1; b < 2 * bits; ++b) {
        const double x = b < bits ? product[b] : -product[b - bits];
        if (x > largest) {
          largest = x;
          bucket = b;
        }
      }
      buckets[task * rows.seq_len + t] = static_cast<int32_t>(bucket);
    }
  });
}

}  // namespace

at::Tensor ClusterQueries(const at::Tensor& given, const at::Tensor& lengths,
                          const ClusterOptions& options) {
  const at::Tensor queries = given.to(at::kCPU);
  const at::Tensor clusters =
      at::empty({queries.size(0), queries.size(2), queries.size(1)},
                queries.options().dtype(at::kLong));
  const auto run = queries.scalar_type() == at::kDouble
                       ? &RunClusterQueries<double>
                       : &RunClusterQueries<float>;
  run(queries, lengths.defined() ? lengths.to(at::kCPU) : lengths, options,
      clusters.data_ptr<int64_t>());
  return clusters.to(given.device());
}

at::Tensor HashBuckets(const at::Tensor& given, int64_t bits, int64_t rounds,
                       int64_t hash_seed) {
  const at::Tensor queries = given.to(at::kCPU);
  const at::Tensor buckets =
      at::empty({queries.size(0), queries.size(2), rounds, queries.size(1)},
                queries.options().dtype(at::kInt));
  const auto run = queries.scalar_type() == at::kDouble
                       ? &RunHashBuckets<double>
                       : &RunHashBuckets<float>;
  run(queries, bits, rounds, hash_seed, buckets.data_ptr<int32_t>());
  return buckets.to(given.device());
}

}  // namespace tarn::ops
