// The hashes of kernels/hash on torch tensors; tensors of other devices are
// fetched, and what was decided goes back.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "kernels/hash/hash.h"

namespace tarn::ops {

/// queries [B, T, H, K] dense float32 or float64; lengths [B] int64 dense or
/// undefined (T). Returns [B, H, T] int64.
at::Tensor ClusterQueries(const at::Tensor& queries, const at::Tensor& lengths,
                          const ClusterOptions& options);

/// queries as above. Returns [B, H, rounds, T] int32.
at::Tensor HashBuckets(const at::Tensor& queries, int64_t bits, int64_t rounds,
                       int64_t hash_seed);

}  // namespace tarn::ops
