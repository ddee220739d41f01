// Which pairs of positions a round of reformer attention compares, and how
// often all rounds do (Kitaev et al. 2020, arXiv 2001.04451, section 2):
// integers only, and nothing here has a gradient. P = B H planes (sequence and
// head), places sorted by bucket and cut into C chunks of s; a chunk reads
// itself and the one before, W = 2 s keys (s with one chunk).
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/executor.h"
#include "kernels/hash/hash.h"

namespace tarn {

/// Buckets are in [0, this).
constexpr int32_t kReformerBuckets = 2 * kMaxHashBits;

struct ReformerWindowInputs {
  int64_t planes = 0, heads = 1, seq_len = 0, rounds = 1;
  int64_t chunk = 1;                  // s, in [1, T]
  const int32_t* buckets = nullptr;   // [P, rounds, T]
  const int32_t* chunk_of = nullptr;  // [P, T, rounds]: the chunk of a position
  const uint8_t* kept = nullptr;      // [B, T], null: all
  bool causal = false;
  int64_t causal_offset = 0;  // i reads j <= i + offset, in [-T, T]
  bool same_bucket = false;   // only keys of the query's own bucket
  bool masked = false;        // i reads itself only if it reads nothing else
  bool counted = false;       // bias -log N_ij, else 0

  int64_t chunks() const { return (seq_len + chunk - 1) / chunk; }
  int64_t width() const { return chunks() > 1 ? 2 * chunk : chunk; }
};

/// buckets, kept: [B, n, T], [B, T] or null. For each of the B n tasks, writes
/// the positions sorted by (bucket, position), those not kept last, and the
/// place of each position. Throws ArgumentError, before any work, for a bucket
/// out of range. O(B n T) time.
void ReformerSort(const int32_t* buckets, const uint8_t* kept, int64_t batch,
                  int64_t tasks_a_row, int64_t seq_len, int64_t* position,
                  int64_t* place, Executor& executor);

/// own [P, C, s], keys [P, C, W]: positions, -1 where there is none. mask [P,
/// C, s, W] or null: pairs the caller allows. Sets others[P, T] to 1 where the
/// round lets a position read another one; leaves the other entries unchanged.
/// O(P T W) time.
void ReformerReadsOthers(const ReformerWindowInputs& in, int64_t round,
                         const int64_t* own, const int64_t* keys,
                         const uint8_t* mask, uint8_t* others,
                         Executor& executor);

/// bias [P, C, s, W] of float or double: what is added to the scores, -infinity
/// where i may not read j, else -log N_ij with N_ij the number of rounds that
/// hold the pair (0 if not counted). others: of all rounds, or null for this
/// round alone. O(P T W rounds) time.
template <typename T>
void ReformerBias(const ReformerWindowInputs& in, int64_t round,
                  const int64_t* own, const int64_t* keys, const uint8_t* mask,
                  const uint8_t* others, T* bias, Executor& executor);

}  // namespace tarn
