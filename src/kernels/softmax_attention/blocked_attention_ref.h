// The oracle of blocked_attention.h: one pair at a time, in double.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/softmax_attention/blocked_attention.h"

namespace tarn::reference {

/// Everything dense and expanded; an empty vector means "absent".
struct AttentionProblem {
  BlockedAttentionOptions options;
  int64_t batch = 1, seq_len = 1, key_len = 1, heads = 1, d_key = 1,
          d_value = 1;
  std::vector<double> queries, keys, values;  // [B, T or S, H, K or V]
  std::vector<double> bias;                   // [B, H, T, S]
  std::vector<double> factors;                // [B, H, T, S], of dropout
  std::vector<uint8_t> mask;                  // [B, H, T, S]
  std::vector<uint8_t> key_mask;              // [B, S]
  std::vector<int64_t> key_lengths;           // [B]
  std::vector<double> sinks;                  // [H]
};

struct AttentionAnswer {
  std::vector<double> out;      // [B, T, H, V]
  std::vector<double> weights;  // [B, H, T, S], before dropout
};
AttentionAnswer SoftmaxAttention(const AttentionProblem& problem);

struct AttentionGradient {
  std::vector<double> queries, keys, values, bias;  // as in the problem
  std::vector<double> sinks;                        // [H]
};
AttentionGradient SoftmaxAttentionBackward(const AttentionProblem& problem,
                                           const std::vector<double>& grad_out);

}  // namespace tarn::reference
