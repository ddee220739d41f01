// Scalar double reference of linear attention, by definition: every sum is over
// the allowed set A(i), no chunks, no states carried, nothing shared with the
// kernel. O(T S) per head. For tests and benchmarks' checks only.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/linear_attention/linear_attention.h"

namespace tarn::reference {

/// One batch row or packed sequence, dense, time first. `kept[j]`: whether key
/// j takes part. Empty state vectors mean zeros.
struct Problem {
  int64_t seq_len_q = 0, seq_len_k = 0, heads = 1, value_heads = 1;
  int64_t d_key = 1, d_value = 1;
  LinearAttentionOptions options;
  std::vector<double> queries, keys,
      values;                // [T, H, K], [S, H, K], [S, HV, V]
  std::vector<bool> kept;    // [S]
  std::vector<double> S, z;  // [HV, K, V], [HV, K]
};

struct Result {
  std::vector<double> out;   // [T, HV, V]
  std::vector<double> S, z;  // after all keys
};

struct Gradients {
  std::vector<double> queries, keys, values, S, z;
};

Result Forward(const Problem& problem);

/// grad_S, grad_z of the final state; empty means zero.
Gradients Backward(const Problem& problem, const std::vector<double>& grad_out,
                   const std::vector<double>& grad_S,
                   const std::vector<double>& grad_z);

}  // namespace tarn::reference
