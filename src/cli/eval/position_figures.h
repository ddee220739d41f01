// What a stream costs and how well it is predicted, by position: the figures of
// `tarn eval --by-position`.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "runtime/model/model.h"

namespace tarn::cli {

/// Positions [begin, end): the tokens scored there, and the mean and standard
/// error of minus their log-probabilities, in bits. The error takes tokens as
/// independent, which neighbours in a text are not: it is a lower bound.
struct PositionBucket {
  int64_t begin = 0, end = 0, tokens = 0;
  double bits = 0, standard_error = 0;
};

/// Sums over buckets whose borders are 1, 2, 5, 10, 20, 50, ...: constant
/// memory for a stream of any length. A token at position p was predicted from
/// the p before it; position 0 is predicted from nothing and not counted.
class PositionBuckets {
 public:
  /// Throws ArgumentError for a position below 1.
  void Add(int64_t position, double nats);
  /// Buckets that hold tokens, in order; the last one ends after the largest
  /// position that was added.
  std::vector<PositionBucket> Rows() const;

 private:
  struct Sums {
    int64_t tokens = 0;
    double bits = 0, squares = 0;
  };
  std::vector<Sums> sums_;  // of the bucket that begins at BucketBegin(i)
  int64_t last_ = 0;
};

/// Where bucket i begins: 1, 2, 5, 10, ... (i from 0).
int64_t BucketBegin(int64_t i);

/// Times of single steps from one state: positions [begin, end) and the median
/// of their microseconds.
struct StepTimes {
  int64_t begin = 0, end = 0;
  double median_us = 0;
};

/// Steps both states by as many tokens, one at a time with logits, each step
/// timed. Blocks of the two follow each other at once, and the first place
/// changes from one pair of blocks to the next, so that a change of the
/// machine's speed affects both. One unmeasured block each comes first. Tokens
/// cycle through a list: their values do not matter. `steps` is rounded up to
/// whole blocks. `stopped` is polled between blocks; true ends the run with
/// what there is. Throws ArgumentError for no tokens or no steps.
struct StepComparison {
  StepTimes near, far;
  int64_t steps = 0;  // of each
};
StepComparison CompareSteps(const Model& model, State& near, State& far,
                            std::span<const int32_t> tokens, int64_t steps,
                            const std::function<bool()>& stopped);

/// Bytes of this process in memory (VmRSS of /proc/self/status); 0 where the
/// system does not report it.
int64_t ResidentBytes();

}  // namespace tarn::cli
