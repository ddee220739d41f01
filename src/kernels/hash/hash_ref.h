// The choices of hash.h for one sequence and head, bit by bit.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/hash/hash.h"

namespace tarn {

using Rows = std::vector<std::vector<double>>;  // [n][K]

/// The cluster of each query.
std::vector<int64_t> ReferenceClusters(const Rows& queries,
                                       const ClusterOptions& options);
/// The bucket of each query in one round.
std::vector<int32_t> ReferenceBuckets(const Rows& queries, int64_t bits,
                                      int64_t round, int64_t hash_seed);

}  // namespace tarn
