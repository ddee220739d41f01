// Forward call of delta_attention on CUDA with gates per channel (KDA).
#include "kernels/delta/cuda/channels.h"
#include "kernels/delta/cuda/launch.cuh"

namespace tarn::cuda::delta {

void ChannelsForward(const RecurrentOptions& options, const RecurrentInputs& in,
                     const RecurrentOutputs& outputs, CudaStream stream,
                     void* workspace) {
  const Call call = OnDevice(options, in);
  ForTypeAndKey(in, [&](auto number, auto key) {
    using T = decltype(number);
    constexpr int kKey = decltype(key)::value;
    size_t bytes = 0;
    const Workspace<T> w =
        LayOut<T>(call, NeedsOf(in, false), workspace, &bytes);
    PrepareOnDevice<T, kKey, true, false>(call, w, stream);
    const ScanOutputs to = {OnDevice(outputs.out), outputs.final_state,
                            outputs.checkpoints};
    ScanOnDevice<T, kKey, true, false>(call, w, to, call.sequences.count,
                                       stream);
  });
}

}  // namespace tarn::cuda::delta
