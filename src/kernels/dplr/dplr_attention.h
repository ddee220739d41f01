// Attention whose state changes by a diagonal plus a low-rank matrix (kernels
// of class C, general): RWKV-7 (Peng et al. 2025, arXiv 2503.14456). float32
// state; float32, bfloat16 or float16 inputs and outputs.
//
//   e_t = S_{t-1}^T c_t                                    S [K, V]
//   S_t = Diag(exp(g_t)) S_{t-1} + b_t e_t^T + k_t v_t^T
//   o_t = scale * S_t^T q_t
//
// c are `reads`, b are `writes`. c is applied before the decay, k and q
// after it: the delta rule's p is c = exp(g) p, b = -beta k. RWKV-7 has c =
// -kappa and b = kappa * alpha. Entries stay bounded only if the transition
// Diag(exp(g)) + b c^T does not grow.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/executor.h"
#include "kernels/recurrence/recurrent_inputs.h"

namespace tarn {

/// Throws ShapeError, DTypeError or ArgumentError naming the argument; `reads`
/// and `writes` are required, HV = H, and there are no betas and no bonus.
/// Reads no tensor data except lengths and cu_seqlens.
void CheckDplrAttention(const RecurrentOptions& options,
                        const RecurrentInputs& in,
                        const RecurrentOutputs& outputs);

/// Bytes of 64-byte aligned scratch that the forward call needs with an
/// executor of `width` workers; none of it grows with T.
size_t DplrAttentionWorkspaceBytes(const RecurrentInputs& in, int width);

/// The same for the gradient, which without checkpoints needs room for those of
/// one sequence and head per worker: K V / 256 floats a token.
size_t DplrAttentionGradientBytes(const RecurrentInputs& in, int width,
                                  bool has_checkpoints);

/// Chunked form: O(T K V) time and no memory that grows with T. Checks first,
/// then runs on `executor`. Inputs are not modified; outputs must not overlap
/// inputs. Same bits for any executor width. T, B = 0 are valid. Rows of tokens
/// that `lengths` leaves out are zero.
void DplrAttentionForward(const RecurrentOptions& options,
                          const RecurrentInputs& in,
                          const RecurrentOutputs& outputs, Executor& executor,
                          void* workspace);

/// Chunked gradient for queries, keys, values, gates, reads, writes and the
/// initial state. Nothing of size T is saved but the inputs and the
/// checkpoints: what was read is solved again, a group of 256 tokens at a time.
void DplrAttentionBackward(const RecurrentOptions& options,
                           const RecurrentInputs& in,
                           const RecurrentGradients& gradients,
                           Executor& executor, void* workspace);

/// Recurrent form, T tokens one after the other on states that the caller owns:
/// T = 1 is a step of B sequences, T > 1 a prefill in the step's arithmetic, so
/// that any split of a prompt gives the same bits. Takes neither cu_seqlens nor
/// initial_state. Allocates nothing.
void DplrAttentionStep(const RecurrentOptions& options,
                       const RecurrentInputs& in, const RecurrentState& state,
                       const TensorView& out, Executor& executor);

}  // namespace tarn
