// Clustered attention (Vyas et al. 2020, arXiv 2007.04825) on torch tensors:
// queries are grouped by the Hamming distance of their hashes, and attention is
// computed once a group. With qbar_c the mean query of cluster c and A the kept
// keys, w_c = softmax over A of softmax_temp qbar_c . k_j:
//   clustered:  o_i = sum_j w_cj v_j, c the cluster of i
//   improved:   the topk keys T_c of w_c are weighed by the query itself:
//               m_c softmax over T_c of softmax_temp q_i . k_j, m_c = their
//               share of w_c; the other keys keep w_cj
//   causal-improved: softmax over {j in T_c, j <= i} alone
// causal-improved is NOT strictly causal: which keys a cluster reads depends on
// later queries and keys. There is no recurrent form.
//
// Everything discrete is decided per sequence and head, from hash_seed and
// positions within the sequence: neither batch mates nor padding matter.
// Gradients flow through means, scores and weights, not through hashes.
// Masked keys and padded queries are skipped, NaN there has no influence;
// padded queries, and all queries where no key is kept, give 0.
//
// float32 and float64; bfloat16 and float16 are computed in float32. Once
// differentiable. Errors arrive as torch's: c10::TypeError for dtypes,
// c10::ValueError for the rest, before any work. Thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "torch_ops/layers/layers.h"

namespace tarn::ops {

struct ClusteredOptions {
  int64_t clusters = 0;     // K >= 1, required; capped at the valid queries
  int64_t iterations = 10;  // of k-means, >= 1
  int64_t bits = 63;        // of a hash, 1 to 63
  bool hash_bias = true;    // bit b = [q . a_b > c_b]; c_b = 0 without
  int64_t topk = 32;        // of the improved kinds, >= 1
  OptionalTensor query_lengths;        // [B] int32 or int64; none: T
  OptionalTensor key_mask;             // [B, S] bool, true = keep
  OptionalTensor key_lengths;          // [B] int32 or int64
  std::optional<double> softmax_temp;  // none: 1 / sqrt(K); 0 is honoured
  Dropout dropout;                     // on the weights
  int64_t hash_seed = 0;               // hashes and starts are a function of it
};

/// queries [B, T, H, K], keys [B, S, H, K], values [B, S, H, V] of one dtype;
/// returns [B, T, H, V]. With C clusters: O(B H (C S (K + V) + T (K + C) bits))
/// time, O(B H C S) memory; no T x S array.
at::Tensor ClusteredAttention(const at::Tensor& queries, const at::Tensor& keys,
                              const at::Tensor& values,
                              const ClusteredOptions& options);

/// Equals full attention where topk >= the kept keys. Adds O(B H T topk (K +
/// V)) time and O(B H (T + C) topk) memory.
at::Tensor ImprovedClusteredAttention(const at::Tensor& queries,
                                      const at::Tensor& keys,
                                      const at::Tensor& values,
                                      const ClusteredOptions& options);
at::Tensor CausalImprovedClusteredAttention(const at::Tensor& queries,
                                            const at::Tensor& keys,
                                            const at::Tensor& values,
                                            const ClusteredOptions& options);

}  // namespace tarn::ops
