// Softmax attention of several queries over the beginnings of one cache: rows
// of a prompt, heads that share their keys, or both. The keys and values that
// all of them see are loaded once for all.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/softmax_attention/softmax_attention.h"

namespace tarn {

/// Most queries that are worth taking at once.
inline constexpr int64_t kMaxSoftmaxRows = 6;

/// A query that reads the first `seq_len` (1 or more) keys of the cache.
struct SoftmaxQuery {
  const float* query = nullptr;  // [d_key]
  float* out = nullptr;          // [d_value]
  int64_t seq_len = 0;
  const float* sink = nullptr;  // SoftmaxStepOptions::sink
};

/// Floats of a row of scratch, which ends at a whole vector of every target.
constexpr int64_t SoftmaxRowFloats(int64_t count) {
  return (count + 15) / 16 * 16;
}
/// Scratch for kMaxSoftmaxRows queries of at most `seq_len` keys: their scores
/// and two sums of values.
constexpr int64_t SoftmaxRowsFloats(int64_t seq_len, int64_t d_value) {
  return kMaxSoftmaxRows *
         (SoftmaxRowFloats(seq_len) + 2 * SoftmaxRowFloats(d_value));
}

/// At most kMaxSoftmaxRows queries, each with the bits that
/// SoftmaxAttentionStep gives it alone. The seq_len, streams and next of
/// `cache` and the sink of `options` are not read. scratch:
/// SoftmaxRowsFloats(longest seq_len, d_value) floats. Allocates nothing,
/// thread-safe, O(sum of seq_len (d_key + d_value)).
void SoftmaxAttentionRows(std::span<const SoftmaxQuery> queries,
                          const KeyValueCache& cache,
                          const SoftmaxStepOptions& options, float* scratch);

}  // namespace tarn
