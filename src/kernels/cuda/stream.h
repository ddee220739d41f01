// A CUDA stream, for headers that need no CUDA: cudaStream_t is this pointer.
#pragma once

struct CUstream_st;

namespace tarn {

using CudaStream = CUstream_st*;

}  // namespace tarn
