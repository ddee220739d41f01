// delta_attention on a CUDA device: the same tensors and results as
// delta_attention.h, where all pointers are device memory, cu_seqlens and
// lengths included. Nothing is read back, allocated or waited for, so that the
// calls may be captured into a CUDA graph.
#pragma once

#include <cstddef>

#include "kernels/cuda/stream.h"
#include "kernels/recurrence/recurrent_inputs.h"

namespace tarn {

/// The widest keys that the kernels take; values may have any width.
constexpr int64_t kDeltaAttentionCudaKey = 128;

/// Whether the kernels serve tensors of these shapes: K <= 128.
bool DeltaAttentionCudaServes(const RecurrentInputs& in);

/// Bytes of workspace, at a multiple of 256 bytes, of a call: two scores of
/// 64 x 64 numbers per 64 tokens and value head; K numbers a token three times
/// more with gates per channel. What is at the pointers does not count.
size_t DeltaAttentionCudaWorkspaceBytes(const RecurrentInputs& in);

/// The same for the gradient: also two copies of the states per 64 tokens in
/// the inputs' dtype, and the checkpoints where the caller has none.
size_t DeltaAttentionCudaGradientBytes(const RecurrentInputs& in,
                                       bool has_checkpoints);

/// Chunks of 64 tokens on tensor cores: operands in the inputs' dtype, sums and
/// the carried state in float32; float32 operands keep float32's accuracy.
/// Throws as DeltaAttentionForward, and DeviceError where a launch fails.
void DeltaAttentionCudaForward(const RecurrentOptions& options,
                               const RecurrentInputs& in,
                               const RecurrentOutputs& outputs,
                               CudaStream stream, void* workspace);

/// Gradients of all inputs, the same bits at every call.
void DeltaAttentionCudaBackward(const RecurrentOptions& options,
                                const RecurrentInputs& in,
                                const RecurrentGradients& gradients,
                                CudaStream stream, void* workspace);

/// T tokens one after the other in float32 on states that the caller owns, as
/// DeltaAttentionStep; slots and lengths are device memory too.
void DeltaAttentionCudaStep(const RecurrentOptions& options,
                            const RecurrentInputs& in,
                            const RecurrentState& state, const TensorView& out,
                            CudaStream stream);

}  // namespace tarn
