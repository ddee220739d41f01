// Softmax attention of whole sequences in blocks of queries and keys: no score
// outlives its block.
//   s_ij = scale q_i . k_j + bias_ij;  p_ij = softmax over A(i);
//   o_i = sum_{j in A(i)} f_ij p_ij v_j,  f: factors of dropout
// With a soft cap c (Gemma 2, arXiv 2408.00118), s_ij = c tanh(scale q_i . k_j
// / c) + bias_ij. With sinks (gpt-oss, arXiv 2508.10925), a score t_h of each
// head joins the sum of p, and no value belongs to it: a row's p sum to less
// than 1. A(i): the keys that every given mask allows. Blocks keep a running
// maximum and sum for each query (Milakov and Gimelshein 2018, arXiv
// 1805.02867; as a kernel Dao et al. 2022, arXiv 2205.14135); the gradient
// recomputes the scores. Key blocks begin at multiples of kKeyBlock for any
// masks, and a block without an allowed key changes nothing of a row, so a
// row's bits depend on its own allowed keys alone: not on threads, padding,
// batch or window of other rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/executor.h"
#include "core/tensor_view.h"
#include "kernels/dropout/dropout.h"

namespace tarn {

struct BlockedAttentionOptions {
  float scale = 1.0f;
  bool causal = false;
  int64_t causal_offset = 0;  // causal: j <= i + offset
  // c > 0: i - floor(c / 2) <= j < i + floor((c + 1) / 2) only; 0: every key.
  int64_t local_context = 0;
  // w > 0, causal only: the last w keys, j > i + offset - w; 0: every key.
  int64_t window = 0;
  float softcap = 0.0f;  // c; 0: none
  // Element (b, h, i, j) of [B, H, T, S] is element j of row (b H + h) T + i.
  DropoutOptions dropout;
};

/// A [B, H, T, S] plane of masks or biases; strides in elements, 0 along an
/// axis that is broadcast. Null data: absent.
template <typename T>
struct ScorePlane {
  const T* data = nullptr;
  int64_t stride[4] = {0, 0, 0, 0};
};

/// queries [B, T, H, K], keys [B, S, H, K], values [B, S, H, V]; float32.
struct BlockedAttentionInputs {
  TensorView queries, keys, values;
  const uint8_t* key_mask = nullptr;     // [B, S] dense, non-zero = keep
  const int64_t* key_lengths = nullptr;  // [B], keys kept at the front
  ScorePlane<uint8_t> mask;              // non-zero = keep
  ScorePlane<float> bias;                // -infinity hides a pair, like a mask
  const float* sinks = nullptr;          // [H]; -infinity: none for that head
};

/// Written, never read. Must not overlap inputs.
struct BlockedAttentionOutputs {
  TensorView out;  // [B, T, H, V]; 0 where A(i) is empty
  // [B, H, T, 2] dense: max_j s_ij and sum_j exp(s_ij - max), the sink among
  // them, for the gradient; may be null.
  float* statistics = nullptr;
};

/// Gradients of a scalar loss from grad_out [B, T, H, V]; out and statistics of
/// the forward call.
struct BlockedAttentionGradients {
  TensorView out, grad_out;
  const float* statistics = nullptr;
  TensorView grad_queries, grad_keys, grad_values;  // written, same shapes
  // Written when not null: dense; each size is that of [B, H, T, S], or 1 if
  // the sum over that axis is wanted.
  float* grad_bias = nullptr;
  int64_t bias_size[4] = {1, 1, 1, 1};
  float* grad_sinks = nullptr;  // [B, H] dense: each batch row's part, or null
};

/// Throws ShapeError, DTypeError or ArgumentError naming the argument; reads no
/// tensor data except key_lengths.
void CheckBlockedAttention(const BlockedAttentionOptions& options,
                           const BlockedAttentionInputs& inputs,
                           const BlockedAttentionOutputs& outputs);

/// Bytes of scratch for an executor of `width` workers, 64-byte aligned:
/// O(K + V) per worker, with the gradient O(S (K + V)).
size_t BlockedAttentionWorkspaceBytes(const BlockedAttentionInputs& inputs,
                                      int width, bool backward);

/// O(B H T S (K + V)) time, with a window of c keys O(B H T (c + 128) (K + V)).
/// Checks first. Masked keys and values have no influence, NaN included.
/// T, S, B = 0 are valid.
void BlockedAttentionForward(const BlockedAttentionOptions& options,
                             const BlockedAttentionInputs& inputs,
                             const BlockedAttentionOutputs& outputs,
                             Executor& executor, void* workspace);

/// A row whose grad_out is 0 contributes nothing, even if it holds NaN. One
/// task per batch row and head; grad_bias costs two of the five products again,
/// in separate tasks.
void BlockedAttentionBackward(const BlockedAttentionOptions& options,
                              const BlockedAttentionInputs& inputs,
                              const BlockedAttentionGradients& gradients,
                              Executor& executor, void* workspace);

/// indices [B, H, T, width] dense, width >= 1: the positions of the `width`
/// allowed keys with the highest scores, ascending, -1 after the last. Of equal
/// scores the lower positions are taken; NaN counts as infinity. Scores are
/// those of the forward pass, each one chain of multiply-adds, so equal keys
/// have equal scores at any position. Reads no values (inputs.values: the
/// keys again). Scratch: BlockedAttentionTopkBytes. O(B H T S (K + log width))
/// time.
void BlockedAttentionTopk(const BlockedAttentionOptions& options,
                          const BlockedAttentionInputs& inputs, int64_t width,
                          int64_t* indices, Executor& executor,
                          void* workspace);
size_t BlockedAttentionTopkBytes(const BlockedAttentionInputs& inputs,
                                 int64_t width, int workers);

}  // namespace tarn
