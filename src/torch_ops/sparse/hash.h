// Hashes of queries and what clustered and reformer attention decide by them.
// Every random number is a function of (hash_seed, stream, counter) with
// positions, planes and rounds as counters (core/rng.h), and projections are
// sums in double in one order: what a sequence gets depends on nothing beside
// it. Plain loops, parallel over sequences and heads on torch's pool.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tarn::ops {

constexpr int64_t kMaxHashBits = 63;

/// Groups queries by k-means on their hashes in Hamming space (Vyas et al.
/// 2020, arXiv 2007.04825, section 3.2).
struct ClusterOptions {
  int64_t clusters = 1;    // capped at the valid queries of a sequence
  int64_t iterations = 1;  // assignments; an update before each but the first
  int64_t bits = kMaxHashBits;
  bool hash_bias = true;
  int64_t hash_seed = 0;
};

/// queries [B, T, H, K] dense float32 or float64; lengths [B] int64 dense or
/// undefined (T). Returns the cluster of every query, [B, H, T] int64, -1 from
/// its length on. Bit b of a hash is [q . a_b > c_b] with a_b ~ N(0, I) and
/// c_b ~ N(0, 1) (0 without bias). Starts are distinct valid positions; ties go
/// to the lowest cluster; a bit of a centre is set iff more than half of the
/// members have it; an empty cluster gets random bits.
/// O(B H T (K 64 + iterations (clusters + bits))) time.
at::Tensor ClusterQueries(const at::Tensor& queries, const at::Tensor& lengths,
                          const ClusterOptions& options);

/// Buckets of every position in every round, [B, H, rounds, T] int32: argmax of
/// [q W ; -q W] with W [K, bits] ~ N(0, 1), lowest on ties (Kitaev et al. 2020,
/// section 2). queries as above. O(B H T rounds K 64) time.
at::Tensor HashBuckets(const at::Tensor& queries, int64_t bits, int64_t rounds,
                       int64_t hash_seed);

}  // namespace tarn::ops
