// Host side of the calls: checks, types and widths, the first two kernels.
#pragma once

#include "core/error.h"
#include "kernels/delta/cuda/prepare.cuh"
#include "kernels/delta/cuda/prepare_channels.cuh"
#include "kernels/delta/cuda/scan.cuh"
#include "kernels/delta/delta_attention.h"
#include "kernels/delta/delta_attention_cuda.h"
#include "kernels/recurrence/checks.h"

namespace tarn::cuda::delta {

// The widest keys; values may have any width.
constexpr int64_t kMostKey = 128;
constexpr RecurrentOp kOp = {"delta_attention", true};

// The checks of the CPU's calls, which do not look at device memory.
inline RecurrentInputs OnDeviceOnly(const RecurrentInputs& in) {
  RecurrentInputs device = in;
  device.on_device = true;
  return device;
}
inline void CheckOnDevice(const RecurrentOptions& options,
                          const RecurrentInputs& in, const TensorView& out,
                          const char* name = "out") {
  CheckRecurrent(kOp, options, OnDeviceOnly(in), out, name);
  const auto refuse = [](const char* argument, const std::string& wanted,
                         const std::string& given) {
    throw ArgumentError(StrCat(kOp.name, " on CUDA: ", argument), wanted,
                        given);
  };
  if (in.queries.size[3] > kMostKey) {
    refuse("queries", StrCat("K of at most ", kMostKey),
           StrCat(in.queries.size[3]));
  }
  if (in.values.size[2] > 65535) {
    refuse("values", "at most 65535 heads", StrCat(in.values.size[2]));
  }
}

template <typename F>
void ForType(DType dtype, const F& f) {
  switch (dtype) {
    case DType::kBF16:
      return f(bfloat16{});
    case DType::kF16:
      return f(half{});
    default:
      return f(0.0f);
  }
}

// f(a number of the type, kKey): padded keys of 64 or 128.
template <typename F>
void ForTypeAndKey(const RecurrentInputs& in, const F& f) {
  ForType(in.queries.dtype, [&](auto number) {
    if (in.queries.size[3] <= 64) {
      f(number, std::integral_constant<int, 64>());
    } else {
      f(number, std::integral_constant<int, 128>());
    }
  });
}

inline WorkspaceNeeds NeedsOf(const RecurrentInputs& in, bool gradient) {
  WorkspaceNeeds needs;
  needs.key = in.queries.size[3] <= 64 ? 64 : 128;
  needs.vector = in.VectorGates();
  needs.gradient = gradient;
  return needs;
}

inline dim3 ChunkGrid(const Call& call) {
  return dim3(static_cast<unsigned>(call.sequences.Slots()),
              static_cast<unsigned>(call.value_heads));
}
// Blocks of the passes over `parts` sequences or groups of tokens.
inline dim3 TileGrid(const Call& call, int64_t parts) {
  return dim3(
      static_cast<unsigned>(call.ValueTiles() * call.value_heads * parts));
}

template <typename T, int kKey, bool kVector, bool kGradient>
void PrepareOnDevice(const Call& call, const Workspace<T>& workspace,
                     CudaStream stream) {
  if constexpr (kVector) {
    constexpr PrepareChannelsShared<T, kKey> kShared;
    Launch(&PrepareChannels<T, kKey, kGradient>, ChunkGrid(call),
           dim3(kThreads), kShared.parts.bytes, stream, call, workspace);
  } else {
    constexpr PrepareShared<T, kKey, kGradient> kShared;
    Launch(&PrepareChunks<T, kKey, kGradient>, ChunkGrid(call), dim3(kThreads),
           kShared.parts.bytes, stream, call, workspace);
  }
}

// kRebuild: `parts` groups of 256 tokens, otherwise sequences.
template <typename T, int kKey, bool kVector, bool kRebuild>
void ScanOnDevice(const Call& call, const Workspace<T>& workspace,
                  const ScanOutputs& outputs, int64_t parts,
                  CudaStream stream) {
  constexpr ScanShared<T, kKey, kVector, kRebuild> kShared;
  Launch(&ScanChunks<T, kKey, kVector, kRebuild>, TileGrid(call, parts),
         dim3(kThreads), kShared.parts.bytes, stream, call, workspace, outputs);
}

}  // namespace tarn::cuda::delta
