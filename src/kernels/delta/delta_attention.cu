// Forward call of delta_attention on CUDA: scores and solves of all chunks at
// once, then the pass over them (cuda/scan.cuh).
#include "kernels/delta/cuda/channels.h"
#include "kernels/delta/cuda/launch.cuh"

namespace tarn {

using namespace cuda::delta;  // NOLINT: what this file launches

bool DeltaAttentionCudaServes(int64_t d_key, int64_t, bool) {
  return d_key <= kMostKey;
}

size_t DeltaAttentionCudaWorkspaceBytes(const RecurrentInputs& in, bool) {
  size_t bytes = 0;
  ForType(in.queries.dtype, [&](auto number) {
    LayOut<decltype(number)>(OnDevice({}, in), NeedsOf(in, false), nullptr,
                             &bytes);
  });
  return bytes;
}

void DeltaAttentionCudaForward(const RecurrentOptions& options,
                               const RecurrentInputs& in,
                               const RecurrentOutputs& outputs,
                               CudaStream stream, void* workspace) {
  CheckOnDevice(options, in, outputs.out);
  if (in.VectorGates()) {
    return ChannelsForward(options, in, outputs, stream, workspace);
  }
  const Call call = OnDevice(options, in);
  ForTypeAndKey(in, [&](auto number, auto key) {
    using T = decltype(number);
    constexpr int kKey = decltype(key)::value;
    size_t bytes = 0;
    const Workspace<T> w =
        LayOut<T>(call, NeedsOf(in, false), workspace, &bytes);
    PrepareOnDevice<T, kKey, false, false>(call, w, stream);
    const ScanOutputs to = {OnDevice(outputs.out), outputs.final_state,
                            outputs.checkpoints};
    ScanOnDevice<T, kKey, false, false>(call, w, to, call.sequences.count,
                                        stream);
  });
}

}  // namespace tarn
