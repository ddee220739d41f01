// DecayAttention (decay_attention.h) on CUDA: the same tensors and options, but
// every pointer, those of lengths, cu_seqlens and slots included, is of the
// device (on_device is set), and work is put into a stream. Nothing is read on
// the host, allocated or waited for, so that calls can be captured in a CUDA
// graph: the values of lengths, cu_seqlens and slots are not checked. Same bits
// for the same call on one type of device. Functions check first and throw as
// those of the CPU do, DeviceError where a launch fails. The composed form
// serves other calls.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/stream.h"
#include "kernels/recurrence/recurrent_inputs.h"

namespace tarn {

/// Whether the kernels take such calls; bonus: with the exclusive read.
bool DecayAttentionCudaServes(int64_t d_key, int64_t d_value, bool vector_gates,
                              bool bonus);

/// Bytes of 256-byte aligned device memory that the forward call needs.
/// checkpoints: whether it writes them.
size_t DecayAttentionCudaWorkspaceBytes(const RecurrentInputs& in,
                                        bool checkpoints);
void DecayAttentionCudaForward(const RecurrentOptions& options,
                               const RecurrentInputs& in,
                               const RecurrentOutputs& outputs,
                               CudaStream stream, void* workspace);

/// The same for the gradient. checkpoints: whether it is given those of the
/// forward call.
size_t DecayAttentionCudaGradientBytes(const RecurrentInputs& in,
                                       bool checkpoints);
void DecayAttentionCudaBackward(const RecurrentOptions& options,
                                const RecurrentInputs& in,
                                const RecurrentGradients& gradients,
                                CudaStream stream, void* workspace);

/// One token (or T, one after the other) of each row on states of the caller.
void DecayAttentionCudaStep(const RecurrentOptions& options,
                            const RecurrentInputs& in,
                            const RecurrentState& state, const TensorView& out,
                            CudaStream stream);

}  // namespace tarn
