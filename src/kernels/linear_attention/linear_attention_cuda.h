// LinearAttention (linear_attention.h) on CUDA: the same tensors and options,
// but every pointer, those of the mask, of lengths and of cu_seqlens included,
// is of the device (on_device is set), and work is put into a stream. Nothing
// is read on the host, allocated or waited for, so that calls can be captured
// in a CUDA graph: the values of key_lengths and cu_seqlens are not checked.
// chunk_size is the kernels' own. Same bits for the same call on one type of
// device. Functions check first and throw as those of the CPU do, DeviceError
// where a launch fails. The composed form serves other calls.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/stream.h"
#include "kernels/linear_attention/linear_attention.h"

namespace tarn {

/// Whether the kernels take such calls.
bool LinearAttentionCudaServes(const LinearAttentionOptions& options,
                               int64_t d_key, int64_t d_value);

/// Bytes of 256-byte aligned device memory that the calls need.
size_t LinearAttentionCudaWorkspaceBytes(const LinearAttentionOptions& options,
                                         const LinearAttentionInputs& inputs);
size_t LinearAttentionCudaGradientBytes(const LinearAttentionOptions& options,
                                        const LinearAttentionInputs& inputs);

void LinearAttentionCudaForward(const LinearAttentionOptions& options,
                                const LinearAttentionInputs& inputs,
                                const LinearAttentionOutputs& outputs,
                                CudaStream stream, void* workspace);
void LinearAttentionCudaBackward(const LinearAttentionOptions& options,
                                 const LinearAttentionInputs& inputs,
                                 const LinearAttentionGradients& gradients,
                                 CudaStream stream, void* workspace);

/// One token of each row, from one state into another, which may be the same.
void LinearAttentionCudaStep(const LinearAttentionOptions& options,
                             const TensorView& queries, const TensorView& keys,
                             const TensorView& values,
                             const LinearAttentionState& state,
                             const TensorView& out, CudaStream stream);

}  // namespace tarn
