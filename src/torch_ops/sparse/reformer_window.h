// The windows of kernels/reformer_window on torch tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "kernels/reformer_window/reformer_window.h"
#include "torch_ops/sparse/reformer_compute.h"

namespace tarn::ops {

/// The window of one round, on the plan's device. P planes (sequence and head),
/// C chunks of s places, W = 2 s or, with one chunk, s.
struct ReformerWindow {
  at::Tensor own;    // [P, C, s] positions; -1 beyond the last
  at::Tensor keys;   // [P, C, W] positions; -1 where there is none
  at::Tensor place;  // [P, T] of each position among [C s]
  at::Tensor bias;   // [P C, s, W] what is added to the scores
};

class ReformerWindows {
 public:
  /// `dtype` float32 or float64, of `bias`. Works on the CPU: a plan of another
  /// device is fetched.
  ReformerWindows(ReformerPlan plan, int64_t seq_len, at::ScalarType dtype);
  ReformerWindow Make(int64_t round) const;
  int64_t chunk() const { return inputs_.chunk; }      // s
  int64_t chunks() const { return inputs_.chunks(); }  // C

 private:
  ReformerWindow Positions(int64_t round) const;
  at::Tensor MaskAt(const ReformerWindow& window) const;

  ReformerPlan plan_;  // on the CPU
  c10::Device device_;
  ReformerWindowInputs inputs_;  // of the tensors below
  at::ScalarType dtype_;
  at::Tensor position_, place_;  // [P, rounds, T]
  at::Tensor buckets_;           // [P, rounds, T] int32
  at::Tensor chunk_of_;          // [P, T, rounds] int32
  at::Tensor kept_;              // [B, T] uint8 or undefined
  at::Tensor others_;  // [P, T] uint8: any round lets i read another position
};

}  // namespace tarn::ops
