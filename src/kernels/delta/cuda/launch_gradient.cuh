// Host side of the gradient: R and the states again from checkpoints, the pass
// in reverse (reverse.cuh), then dq, dk and dg of all chunks at once
// (rows_gradient.cuh, channels_gradient.cuh).
#pragma once

#include "kernels/delta/cuda/channels_gradient.cuh"
#include "kernels/delta/cuda/head_sums.cuh"
#include "kernels/delta/cuda/launch.cuh"
#include "kernels/delta/cuda/reverse.cuh"
#include "kernels/delta/cuda/rows_gradient.cuh"

namespace tarn::cuda::delta {

inline WorkspaceNeeds GradientNeeds(const RecurrentInputs& in,
                                    bool has_checkpoints) {
  WorkspaceNeeds needs = NeedsOf(in, true);
  needs.checkpoints = has_checkpoints ? 0 : RecurrentCheckpoints(in);
  return needs;
}

template <typename T, int kKey, bool kVector>
void ReverseOnDevice(const Call& call, const Workspace<T>& workspace,
                     const ReverseTensors& tensors, CudaStream stream) {
  constexpr ReverseShared<T, kKey, kVector> kShared;
  Launch(&ReverseChunks<T, kKey, kVector>, TileGrid(call, call.sequences.count),
         dim3(kThreads), kShared.parts.bytes, stream, call, workspace, tensors);
}

template <typename T, int kKey, bool kVector>
void RowGradientsOnDevice(const Call& call, const Workspace<T>& workspace,
                          const RowsTensors& tensors, CudaStream stream) {
  constexpr RowsShared<T> kShared;
  dim3 parts = ChunkGrid(call);
  parts.x *= kKey / kRowsPart;
  Launch(&RowGradients<T, kKey, kVector>, parts, dim3(kThreads),
         kShared.parts.bytes, stream, call, workspace, tensors);
  if constexpr (kVector) {
    constexpr ChannelsShared<kKey> kChannels;
    Launch(&ChannelGradients<T, kKey>, ChunkGrid(call), dim3(kKey),
           kChannels.parts.bytes, stream, call, workspace, tensors);
  }
  if (call.group > 1) {
    const dim3 grid(static_cast<unsigned>(call.sequences.Slots()),
                    static_cast<unsigned>(call.heads));
    Launch(&SumHeads<T, kKey>, grid, dim3(kThreads), 0, stream, call, workspace,
           tensors);
  }
}

// The whole gradient; checks are done.
template <bool kVector>
void BackwardOnDevice(const RecurrentOptions& options,
                      const RecurrentInputs& in,
                      const RecurrentGradients& gradients, CudaStream stream,
                      void* workspace) {
  const Call call = OnDevice(options, in);
  const bool saved = gradients.checkpoints != nullptr;
  ForTypeAndKey(in, [&](auto number, auto key) {
    using T = decltype(number);
    constexpr int kKey = decltype(key)::value;
    size_t bytes = 0;
    const Workspace<T> w =
        LayOut<T>(call, GradientNeeds(in, saved), workspace, &bytes);
    PrepareOnDevice<T, kKey, kVector, true>(call, w, stream);
    ScanOutputs scan;
    if (saved) {
      scan.checkpoints = const_cast<float*>(gradients.checkpoints);  // read
    } else if (w.checkpoints != nullptr) {
      scan.checkpoints = w.checkpoints;
      ScanOnDevice<T, kKey, kVector, false>(call, w, scan, call.sequences.count,
                                            stream);
    }
    ScanOnDevice<T, kKey, kVector, true>(
        call, w, scan, call.sequences.Slots(kGroupTokens), stream);
    const DeviceView grad_out = OnDevice(gradients.grad_out);
    const DeviceView grad_values = OnDevice(gradients.grad_values);
    ReverseOnDevice<T, kKey, kVector>(
        call, w,
        {grad_out, grad_values, gradients.grad_final_state,
         gradients.grad_initial_state},
        stream);
    RowGradientsOnDevice<T, kKey, kVector>(
        call, w,
        {grad_out, grad_values, OnDevice(gradients.grad_queries),
         OnDevice(gradients.grad_keys), OnDevice(gradients.grad_gates),
         OnDevice(gradients.grad_betas)},
        stream);
    if constexpr (!kVector) {
      if (gradients.grad_gates.data != nullptr) {
        Launch(&StoreGateGradients<T, kKey>, ChunkGrid(call), dim3(kChunk), 0,
               stream, call, w, OnDevice(gradients.grad_gates));
      }
      if (gradients.grad_head_gates != nullptr) {
        Launch(&SumGateGradients<T, kKey>,
               dim3(static_cast<unsigned>(call.value_heads)), dim3(kThreads),
               kThreads * sizeof(double), stream, call, w,
               gradients.grad_head_gates);
      }
    }
  });
}

}  // namespace tarn::cuda::delta
