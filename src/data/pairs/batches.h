// Which examples are read together: batches of similar length.
#pragma once

#include <cstdint>
#include <vector>

#include "data/pairs/examples.h"

namespace tarn::train {

/// Epochs of batches. Within an epoch every example occurs at most once (what
/// is left over when `batch` does not divide them waits for the next one);
/// batches are cut from pools of kPoolBatches batches' worth of shuffled
/// examples sorted by length, so that little is padded, and then shuffled. Not
/// thread-safe: it keeps the order of the epoch requested last (24 bytes an
/// example).
class BatchOrder {
 public:
  static constexpr int64_t kPoolBatches = 64;

  /// examples: not empty; only lengths are read, none is kept.
  /// batch: >= 1; cut down to the number of examples.
  BatchOrder(const Examples& examples, int64_t batch, uint64_t seed);

  /// Batches of an epoch, 1 or more.
  int64_t batches() const { return batches_; }
  /// Examples of batch `index` (counted from 0 through all epochs): a pure
  /// function of lengths, batch, seed and index. O(1) within an epoch, O(n log
  /// n) for the first of one.
  std::vector<int64_t> Batch(int64_t index);

 private:
  void Shuffle(int64_t epoch);

  uint64_t seed_;
  int64_t batch_, batches_;
  std::vector<int32_t> lengths_;  // input and target tokens
  int64_t epoch_ = -1;            // the epoch of order_ and firsts_
  std::vector<int64_t> order_;    // examples
  std::vector<int64_t> firsts_;   // first place of batch i in order_
};

}  // namespace tarn::train
