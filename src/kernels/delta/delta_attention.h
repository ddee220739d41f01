// Attention by the delta rule (kernels of class C, tied): DeltaNet (Yang et al.
// 2024, arXiv 2406.06484), Gated DeltaNet (Yang et al. 2024, arXiv 2412.06464)
// and KDA (Kimi Team 2025, arXiv 2510.26692).
// float32 state; float32, bfloat16 or float16 inputs and outputs.
//
//   W   = Diag(exp(g_t)) S_{t-1}                 S, W [K, V]
//   u_t = beta_t (v_t - W^T k_t)
//   S_t = W + k_t u_t^T
//   o_t = scale * S_t^T q_t
//
// g_t is absent (DeltaNet), one number per head or per token and head (Gated
// DeltaNet), or K of them (KDA). beta_t is any number; entries of the inverse
// that a chunk solves stay small for unit keys and 0 <= beta <= 2.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/executor.h"
#include "kernels/recurrence/recurrent_inputs.h"

namespace tarn {

/// Throws ShapeError, DTypeError or ArgumentError naming the argument; `betas`
/// is required, `bonus` refused. Reads no tensor data except lengths and
/// cu_seqlens.
void CheckDeltaAttention(const RecurrentOptions& options,
                         const RecurrentInputs& in,
                         const RecurrentOutputs& outputs);

/// Bytes of 64-byte aligned scratch that the forward call needs with an
/// executor of `width` workers; none of it grows with T.
size_t DeltaAttentionWorkspaceBytes(const RecurrentInputs& in, int width);

/// The same for the gradient, which without checkpoints needs room for those of
/// one sequence and head per worker: K V / 256 floats a token.
size_t DeltaAttentionGradientBytes(const RecurrentInputs& in, int width,
                                   bool has_checkpoints);

/// Chunked form: O(T K V) time and no memory that grows with T. Checks first,
/// then runs on `executor`. Inputs are not modified; outputs must not overlap
/// inputs. Same bits for any executor width. T, B = 0 are valid. Rows of tokens
/// that `lengths` leaves out are zero.
void DeltaAttentionForward(const RecurrentOptions& options,
                           const RecurrentInputs& in,
                           const RecurrentOutputs& outputs, Executor& executor,
                           void* workspace);

/// Chunked gradient for queries, keys, values, gates, betas and the initial
/// state. Nothing of size T is saved but the inputs and the checkpoints: the
/// values u are solved again, a group of 256 tokens at a time.
void DeltaAttentionBackward(const RecurrentOptions& options,
                            const RecurrentInputs& in,
                            const RecurrentGradients& gradients,
                            Executor& executor, void* workspace);

/// Recurrent form, T tokens one after the other on states that the caller owns:
/// T = 1 is a step of B sequences, T > 1 a prefill in the step's arithmetic, so
/// that any split of a prompt gives the same bits. Takes neither cu_seqlens nor
/// initial_state. Allocates nothing.
void DeltaAttentionStep(const RecurrentOptions& options,
                        const RecurrentInputs& in, const RecurrentState& state,
                        const TensorView& out, Executor& executor);

}  // namespace tarn
