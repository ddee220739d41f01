#include "kernels/hash/hash.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <vector>

#include "core/error.h"
#include "core/rng.h"

namespace tarn {
namespace {

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
    Rng rng(static_cast<uint64_t>(options_.hash_seed), kHashStarts);
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
    Rng rng(static_cast<uint64_t>(options_.hash_seed), kHashEmptyClusters,
            counter);
    return rng.Next() >> (kColumns - options_.bits);
  }

  const std::vector<uint64_t>& hashes_;
  const ClusterOptions& options_;
  std::vector<int64_t> cluster_;
  std::vector<uint64_t> centres_;
};

template <typename T>
const T* RowAt(const HashRows<T>& in, int64_t plane, int64_t t) {
  const int64_t row = plane / in.heads, head = plane % in.heads;
  return in.queries + ((row * in.seq_len + t) * in.heads + head) * in.d_key;
}

void WantBits(const char* op, int64_t bits) {
  if (bits >= 1 && bits <= kMaxHashBits) return;
  throw ArgumentError(StrCat(op, ": bits"), StrCat("1 to ", kMaxHashBits),
                      StrCat(bits));
}

void WantAtLeastOne(const char* name, int64_t value) {
  if (value >= 1) return;
  throw ArgumentError(name, "at least 1", StrCat(value));
}

}  // namespace

template <typename T>
void ClusterQueries(const HashRows<T>& in, const ClusterOptions& options,
                    int64_t* clusters, Executor& executor) {
  WantBits("cluster_queries", options.bits);
  WantAtLeastOne("cluster_queries: clusters", options.clusters);
  WantAtLeastOne("cluster_queries: iterations", options.iterations);
  for (int64_t b = 0; in.lengths != nullptr && b < in.batch; ++b) {
    if (in.lengths[b] >= 0 && in.lengths[b] <= in.seq_len) continue;
    throw ArgumentError(StrCat("cluster_queries: lengths[", b, "]"),
                        StrCat("a length in [0, ", in.seq_len, "]"),
                        StrCat(in.lengths[b]));
  }
  const auto planes =
      Gaussian(in.d_key, options.bits, options.hash_seed, kHashPlanes);
  Projection offsets{};
  Rng rng(static_cast<uint64_t>(options.hash_seed), kHashOffsets);
  for (int64_t b = 0; b < options.bits && options.hash_bias; ++b) {
    offsets[b] = rng.Normal();
  }
  executor.ParallelFor(in.batch * in.heads, [&](int64_t plane, int) {
    const int64_t length =
        in.lengths != nullptr ? in.lengths[plane / in.heads] : in.seq_len;
    std::vector<uint64_t> hashes(length);
    Projection product;
    for (int64_t t = 0; t < length; ++t) {
      Project(RowAt(in, plane, t), in.d_key, options.bits, planes, &product);
      for (int64_t b = 0; b < options.bits; ++b) {
        hashes[t] |= static_cast<uint64_t>(product[b] > offsets[b]) << b;
      }
    }
    HammingKMeans kmeans(hashes, options);
    const std::vector<int64_t>& cluster = kmeans.Run();
    int64_t* row = clusters + plane * in.seq_len;
    std::copy(cluster.begin(), cluster.end(), row);
    std::fill(row + length, row + in.seq_len, int64_t{-1});
  });
}

template <typename T>
void HashBuckets(const HashRows<T>& in, int64_t bits, int64_t rounds,
                 int64_t hash_seed, int32_t* buckets, Executor& executor) {
  WantBits("hash_buckets", bits);
  WantAtLeastOne("hash_buckets: rounds", rounds);
  std::vector<std::vector<double>> matrices;
  for (int64_t r = 0; r < rounds; ++r) {
    matrices.push_back(Gaussian(in.d_key, bits, hash_seed,
                                kHashRounds + static_cast<uint64_t>(r)));
  }
  executor.ParallelFor(in.batch * in.heads * rounds, [&](int64_t task, int) {
    Projection product;
    for (int64_t t = 0; t < in.seq_len; ++t) {
      Project(RowAt(in, task / rounds, t), in.d_key, bits,
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
      buckets[task * in.seq_len + t] = static_cast<int32_t>(bucket);
    }
  });
}

template void ClusterQueries(const HashRows<float>&, const ClusterOptions&,
                             int64_t*, Executor&);
template void ClusterQueries(const HashRows<double>&, const ClusterOptions&,
                             int64_t*, Executor&);
template void HashBuckets(const HashRows<float>&, int64_t, int64_t, int64_t,
                          int32_t*, Executor&);
template void HashBuckets(const HashRows<double>&, int64_t, int64_t, int64_t,
                          int32_t*, Executor&);

}  // namespace tarn
