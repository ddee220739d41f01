// The windows of reformer_window.h pair by pair.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/reformer_window/reformer_window.h"

namespace tarn {

/// One plane by definition: position_of[r] holds the positions sorted for round
/// r. Gives the bias of query i and key j in `round`: -infinity or -log N_ij.
class ReferenceWindow {
 public:
  ReferenceWindow(const ReformerWindowInputs& in, int64_t plane,
                  std::vector<std::vector<int64_t>> position_of);
  double Bias(int64_t round, int64_t i, int64_t j) const;

 private:
  // Whether round r lets i read j, itself included.
  bool Reads(int64_t r, int64_t i, int64_t j) const;
  int64_t ChunkOf(int64_t r, int64_t i) const;
  int32_t BucketOf(int64_t r, int64_t i) const;

  const ReformerWindowInputs& in_;
  int64_t plane_;
  std::vector<std::vector<int64_t>> position_of_;
};

/// Positions of one task sorted by (bucket, position), those not kept last.
std::vector<int64_t> ReferenceSort(const std::vector<int32_t>& buckets,
                                   const std::vector<bool>& kept);

}  // namespace tarn
