// Which pairs of positions the rounds of reformer attention compare, and how
// often: whole numbers only, nothing here has a gradient.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "torch_ops/sparse/reformer_compute.h"

namespace tarn::ops {

/// One round's, on the plan's device. P planes (sequence and head), C chunks of s places, W = 2 s or,
/// with one chunk, s.
struct ReformerWindow {
  at::Tensor own;    // [P, C, s] positions; -1 beyond the last
  at::Tensor keys;   // [P, C, W] positions; -1 where there is none
  at::Tensor place;  // [P, T] of each position among [C s]
  /// [P C, s, W] what is added to the scores: -infinity where i may not read
  /// j, else -log N_ij, with N_ij the number of rounds that hold the pair (1
  /// for one round and for the mean of the rounds).
  at::Tensor bias;
};

class ReformerWindows {
 public:
  /// `dtype` float32 or float64, of `bias`. Works on the CPU: a plan of another
  /// device is fetched.
  ReformerWindows(ReformerPlan plan, int64_t seq_len,
                  at::ScalarType dtype);
  /// O(P T W rounds) time, in parallel.
  ReformerWindow Make(int64_t round) const;
  int64_t chunk() const { return chunk_; }    // s
  int64_t chunks() const { return chunks_; }  // C

 private:
  class Pairs;
  static constexpr int64_t kGroup = 64;  // chunks of one task
  int64_t Groups() const { return (chunks_ + kGroup - 1) / kGroup; }
  at::Tensor MaskAt(const ReformerWindow& window) const;
  void FindOthers();
  template <typename T>
  void FillBias(int64_t round, const ReformerWindow& window) const;
  ReformerWindow Positions(int64_t round) const;

  ReformerPlan plan_;  // on the CPU
  c10::Device device_;
  int64_t heads_, planes_, seq_len_, chunk_, chunks_;
  at::ScalarType dtype_;
  at::Tensor position_, place_;  // [P, rounds, T]
  at::Tensor buckets_;           // [P, rounds, T] int32
  at::Tensor chunk_of_;          // [P, T, rounds] int32
  at::Tensor others_;  // [P, T] bool: any round lets i read another position
};

}  // namespace tarn::ops
