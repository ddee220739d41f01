// Softmax attention on torch tensors: every key (full), a window of keys
// (local), the highest scores (exact top-k). And what all kinds of attention
// share: which keys a query may read.
//
// With A(i) the allowed keys of query i and s_ij = softmax_temp q_i . k_j +
// bias_ij:
//   p_ij = exp(s_ij) / sum_{l in A(i)} exp(s_il)
//   o_i = sum_{j in A(i)} p_ij v_j
// A soft cap c makes c tanh(softmax_temp q_i . k_j / c) of the product (Gemma
// 2, arXiv 2408.00118); a sink t of each head adds exp(t) to the sum (gpt-oss,
// arXiv 2508.10925). Exact top-k takes neither, nor a window. What is not
// allowed is skipped, never multiplied by zero: NaN there has no influence. A
// query that may read nothing gets 0 and sends no gradient.
//
// float32, bfloat16 and float16 run the kernel (kernels/softmax_attention),
// once differentiable; float64 runs the composed form, differentiable to any
// order. Errors arrive as torch's: c10::TypeError for dtypes, c10::ValueError
// for shapes, ranges and devices, before any work. Thread-safe; the same bits
// for any number of threads, any padding and any batch mates.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/SymInt.h>

#include <cstdint>
#include <optional>

#include "torch_ops/layers/layers.h"

namespace tarn::ops {

/// Which keys query i may read: all that every given term allows. B batch,
/// H heads, T queries, S keys; true = keep.
struct AttentionMasks {
  bool causal = false;            // j <= i + causal_offset
  c10::SymInt causal_offset = 0;  // S - T aligns the last query and key
  OptionalTensor attention_mask;  // bool, broadcastable to [B, H, T, S]
  OptionalTensor key_mask;        // [B, S] bool
  OptionalTensor key_lengths;     // [B] int32 or int64: keys kept at the front
};

/// What the softmax kinds take besides masks.
struct SoftmaxOptions {
  std::optional<double> softmax_temp;  // none: 1 / sqrt(K); 0 is honoured
  OptionalTensor bias;  // broadcastable to [B, H, T, S], differentiable
  Dropout dropout;      // on the final weights
  /// w >= 1, causal only: the last w keys alone, j > i + causal_offset - w.
  c10::SymInt window = 0;
  double softcap = 0;  // c; 0: none
  OptionalTensor sinks =
      std::nullopt;  // [H], differentiable; -infinity: none for that head
};

struct AttentionResult {
  at::Tensor out;      // [B, T, H, V]
  at::Tensor weights;  // [B, H, T, S] before dropout; undefined unless asked
};

/// queries [B, T, H, K], keys [B, S, H, K], values [B, S, H, V] of one dtype.
/// O(B H T S (K + V)) time, O(T) memory besides the result. need_weights:
/// composed form with the weights, O(B H T S) memory.
AttentionResult FullAttention(const at::Tensor& queries, const at::Tensor& keys,
                              const at::Tensor& values,
                              const AttentionMasks& masks = {},
                              const SoftmaxOptions& options = {},
                              bool need_weights = false);

/// Full attention over i - floor(c / 2) <= j < i + floor((c + 1) / 2),
/// c = local_context >= 1. O(B H T c (K + V)) time.
at::Tensor LocalAttention(const at::Tensor& queries, const at::Tensor& keys,
                          const at::Tensor& values, int64_t local_context,
                          const AttentionMasks& masks = {},
                          const SoftmaxOptions& options = {});

/// Softmax over the topk >= 1 allowed keys of the highest scores; ties go to
/// the lower position. Equals full attention where |A(i)| <= topk. O(T S K)
/// time; for the gradient O(B H T topk (K + V)) memory.
AttentionResult ExactTopkAttention(const at::Tensor& queries,
                                   const at::Tensor& keys,
                                   const at::Tensor& values, int64_t topk,
                                   const AttentionMasks& masks = {},
                                   const SoftmaxOptions& options = {},
                                   bool need_weights = false);

/// Throws ShapeError, DTypeError, DeviceError or ArgumentError ("op: name")
/// unless the masks fit queries [B, T, H, K] and keys [B, S, H, K]. Reads
/// key_lengths, no other data, and those only where they hold data.
void CheckAttentionMasks(const char* op, const AttentionMasks& masks,
                         const at::Tensor& queries, const at::Tensor& keys);

/// All terms as one bool tensor whose sizes are those of [B, H, T, S] or 1;
/// undefined: every pair is allowed. For composed forms; sizes may be symbolic.
at::Tensor AllowedPairs(const AttentionMasks& masks, const at::Tensor& queries,
                        const at::Tensor& keys);

}  // namespace tarn::ops
