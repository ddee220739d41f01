// Hashes of queries, and the choices of clustered and reformer attention that
// depend on them. Every random number is a function of (hash_seed, stream,
// counter) with positions, planes and rounds as counters (core/rng.h), and
// projections are sums in double in one order: the result of a sequence depends
// on that sequence alone. Plain loops, parallel over sequences and heads.
#pragma once

#include <cstdint>

#include "core/executor.h"

namespace tarn {

constexpr int64_t kMaxHashBits = 63;

/// Streams of one hash_seed; rounds of the reformer count from the last.
enum HashStream : uint64_t {
  kHashPlanes,
  kHashOffsets,
  kHashStarts,
  kHashEmptyClusters,
  kHashRounds
};

/// queries [B, T, H, K] dense; lengths [B] in [0, T], null: T each.
template <typename T>
struct HashRows {
  const T* queries = nullptr;
  const int64_t* lengths = nullptr;
  int64_t batch = 0, seq_len = 0, heads = 0, d_key = 0;
};

/// Groups queries by k-means on their hashes in Hamming space (Vyas et al.
/// 2020, arXiv 2007.04825, section 3.2).
struct ClusterOptions {
  int64_t clusters = 1;    // capped at the valid queries of a sequence
  int64_t iterations = 1;  // assignments; an update before each but the first
  int64_t bits = kMaxHashBits;
  bool hash_bias = true;
  int64_t hash_seed = 0;
};

/// Writes the cluster of every query, [B, H, T], -1 from its length on. Bit b
/// of a hash is [q . a_b > c_b] with a_b ~ N(0, I) and c_b ~ N(0, 1) (0 without
/// bias). Starts are distinct valid positions; ties go to the lowest cluster; a
/// bit of a centre is set iff more than half of the members have it; an empty
/// cluster gets random bits. float or double. Throws ArgumentError.
/// O(B H T (K 64 + iterations (clusters + bits))) time.
template <typename T>
void ClusterQueries(const HashRows<T>& in, const ClusterOptions& options,
                    int64_t* clusters, Executor& executor);

/// Writes the buckets of every position in every round, [B, H, rounds, T]:
/// argmax of [q W ; -q W] with W [K, bits] ~ N(0, 1), lowest on ties (Kitaev et
/// al. 2020, section 2); lengths are not read. float or double. Throws
/// ArgumentError. O(B H T rounds K 64) time.
template <typename T>
void HashBuckets(const HashRows<T>& in, int64_t bits, int64_t rounds,
                 int64_t hash_seed, int32_t* buckets, Executor& executor);

}  // namespace tarn
