// Attention whose state decays (kernels of class A and B): RetNet (Sun et al.
// 2023, arXiv 2307.08621, eq. 6), Lightning, Mamba-2 (Dao and Gu 2024, arXiv
// 2405.21060), GLA (Yang et al. 2023, arXiv 2312.06635), HGRN2.
// float32 state; float32, bfloat16 or float16 inputs and outputs.
//
//   S_t = Diag(exp(g_t)) S_{t-1} + k_t v_t^T        S [K, V]
//   o_t = scale * S_t^T q_t
//
// g_t is absent, one number per head, one per token and head, or K of them.
// With `bonus` u the read is exclusive (RWKV-6, Peng et al. 2024, arXiv
// 2404.05892):
//   o_t = scale * (S_{t-1} + Diag(u) k_t v_t^T)^T q_t
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/executor.h"
#include "kernels/recurrence/recurrent_inputs.h"

namespace tarn {

/// Throws ShapeError, DTypeError or ArgumentError naming the argument; reads no
/// tensor data except lengths and cu_seqlens.
void CheckDecayAttention(const RecurrentOptions& options,
                         const RecurrentInputs& in,
                         const RecurrentOutputs& outputs);

/// Bytes of 64-byte aligned scratch that the forward call needs with an
/// executor of `width` workers; none of it grows with T.
size_t DecayAttentionWorkspaceBytes(const RecurrentInputs& in, int width);

/// The same for the gradient, which without checkpoints needs room for those of
/// one sequence and head per worker: K V / 256 floats a token.
size_t DecayAttentionGradientBytes(const RecurrentInputs& in, int width,
                                   bool has_checkpoints);

/// Chunked form: O(T K V) time and no memory that grows with T. Checks first,
/// then runs on `executor`. Inputs are not modified; outputs must not overlap
/// inputs. Same bits for any executor width. T, B = 0 are valid. Rows of tokens
/// that `lengths` leaves out are zero.
void DecayAttentionForward(const RecurrentOptions& options,
                           const RecurrentInputs& in,
                           const RecurrentOutputs& outputs, Executor& executor,
                           void* workspace);

/// Chunked gradient: one pass in reverse over groups of 256 tokens, whose
/// states are rebuilt from the checkpoints. The same bits with and without
/// saved checkpoints, and for any executor width.
void DecayAttentionBackward(const RecurrentOptions& options,
                            const RecurrentInputs& in,
                            const RecurrentGradients& gradients,
                            Executor& executor, void* workspace);

/// Recurrent form, T tokens one after the other on states that the caller owns:
/// T = 1 is a step of B sequences, T > 1 a prefill in the step's arithmetic, so
/// that any split of a prompt gives the same bits. Takes neither cu_seqlens nor
/// initial_state. Allocates nothing.
void DecayAttentionStep(const RecurrentOptions& options,
                        const RecurrentInputs& in, const RecurrentState& state,
                        const TensorView& out, Executor& executor);

}  // namespace tarn
