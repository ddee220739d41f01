// Reformer attention (Kitaev et al. 2020, arXiv 2001.04451) on torch tensors:
// queries are their own keys, key_j = q_j / |q_j| (zero for a zero query), and
// meet only the positions that a hash sorts near them. Round r: bucket =
// argmax of [q W ; -q W], W a Gaussian matrix; positions sorted by (bucket,
// position), padding last, and cut in chunks; P_i^r = the allowed positions in
// the chunk of i and the one before. With s_ij = softmax_temp q_i . key_j the
// rounds together are one softmax over the union of all P_i^r:
//   o_i = sum_r sum_{j in P_i^r} exp(s_ij - log N_ij - lse_i) v_j,
// N_ij the number of rounds that hold j. `compat`: the plain mean of the
// rounds' softmaxes instead, as idiap/fast-transformers computes it.
//
// NOT strictly causal under a causal mask: buckets and chunk borders depend on
// later positions. There is no recurrent form. The order is decided per
// sequence and head, from hash_seed and positions within the sequence: neither
// batch mates nor padding matter. Gradients flow through scores and values, not
// through the order. Masked positions are skipped: NaN there has no influence,
// and where a query and key at a masked position is not finite it counts as 0.
// A query that may read nothing gives 0.
//
// float32 and float64; bfloat16 and float16 are computed in float32. Once
// differentiable. Errors arrive as torch's: c10::TypeError for dtypes,
// c10::ValueError for the rest, before any work. Thread-safe.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "torch_ops/softmax/attention.h"

namespace tarn::ops {

struct ReformerOptions {
  int64_t chunk_size = 32;   // >= 1
  int64_t bits = 63;         // columns of W, 1 to 63: 2 bits buckets
  int64_t rounds = 4;        // R >= 1
  bool masked = false;       // i reads itself only where nothing else is left
  bool same_bucket = false;  // P_i^r also requires equal buckets
  bool compat = false;       // mean of the rounds
  std::optional<double> softmax_temp;  // none: 1 / sqrt(K); 0 is honoured
  Dropout dropout;                     // on each round's weights
  int64_t hash_seed = 0;               // the matrices W are a function of it
};

/// queries [B, T, H, K], values [B, T, H, V] of one dtype; masks as for full
/// attention with S = T. Returns [B, T, H, V]. O(B H T R (K bits + chunk_size
/// (K + V))) time, O(B H T R chunk_size) memory; no T x T array. Equals full
/// attention with shared queries and keys where chunk_size >= T.
at::Tensor ReformerAttention(const at::Tensor& queries,
                             const at::Tensor& values,
                             const AttentionMasks& masks = {},
                             const ReformerOptions& options = {});

}  // namespace tarn::ops
