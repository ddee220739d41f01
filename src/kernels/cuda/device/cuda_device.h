// What tarn's CUDA kernels use of a device, on the device. Kernels include
// "cuda_device.h" and find this file, or, compiled as C++ for the tests, the
// one of the same name in tests/cuda_emulation. Everything is for compute
// capability 8.0 and newer.
//
// Warp-wide functions (shuffles, SyncWarp, Mma, LoadMatrix) are called by all
// 32 threads of a warp together; blocks are multiples of 32 threads.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "core/error.h"
#include "kernels/cuda/stream.h"

namespace tarn::cuda {

using bfloat16 = __nv_bfloat16;
using half = __half;
struct Tf32 {};  // names the type of Mma's operands

// ---- Host: launches -------------------------------------------------------

inline void CheckCuda(cudaError_t status, const char* where) {
  if (status == cudaSuccess) return;
  throw DeviceError(where, "success", cudaGetErrorString(status));
}

/// Multiprocessors of the current device.
inline int MultiprocessorCount() {
  int device = 0, count = 0;
  CheckCuda(cudaGetDevice(&device), "cudaGetDevice");
  CheckCuda(
      cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device),
      "cudaDeviceGetAttribute");
  return count;
}

/// Bytes of shared memory that a block may have.
inline constexpr size_t kMostSharedBytes = 227 * 1024;

/// Starts kernel(args...) on `stream`. An empty grid starts nothing. Throws
/// DeviceError where the launch fails.
template <typename... Params, typename... Args>
void Launch(void (*kernel)(Params...), dim3 grid, dim3 block,
            size_t shared_bytes, CudaStream stream, const Args&... args) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  if (shared_bytes > 48 * 1024) {
    CheckCuda(cudaFuncSetAttribute(kernel,
                                   cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   static_cast<int>(shared_bytes)),
              "cudaFuncSetAttribute");
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  CheckCuda(cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...),
            "kernel launch");
  CheckCuda(cudaGetLastError(), "kernel launch");
}

/// Sets `bytes` of device memory to zero, in the order of `stream`.
inline void ZeroMemory(void* to, size_t bytes, CudaStream stream) {
  if (bytes == 0) return;
  CheckCuda(cudaMemsetAsync(to, 0, bytes, stream), "cudaMemsetAsync");
}

// ---- Shared memory --------------------------------------------------------

/// The block's dynamic shared memory, at a multiple of 128 bytes. Holds
/// arbitrary bytes at first.
__device__ __forceinline__ char* SharedMemory() {
  extern __shared__ __align__(128) char tarn_shared_memory[];
  return tarn_shared_memory;
}

__device__ __forceinline__ uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// ---- Barriers and warps ---------------------------------------------------

/// All threads of the block; orders shared and global memory among them.
__device__ __forceinline__ void SyncBlock() { __syncthreads(); }

/// The first to arrive of `threads` threads (whole warps) wait for the rest.
/// Barriers 1 to 15 are free; SyncBlock is number 0.
__device__ __forceinline__ void SyncSome(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

__device__ __forceinline__ void SyncWarp() { __syncwarp(); }

/// T: int, unsigned, float, 64-bit integers.
template <typename T>
__device__ __forceinline__ T Shuffle(T x, int lane) {
  return __shfl_sync(0xffffffffu, x, lane);
}
/// From lane ^ mask.
template <typename T>
__device__ __forceinline__ T ShuffleXor(T x, int mask) {
  return __shfl_xor_sync(0xffffffffu, x, mask);
}
/// From lane - distance; lanes below it keep their own.
template <typename T>
__device__ __forceinline__ T ShuffleUp(T x, int distance) {
  return __shfl_up_sync(0xffffffffu, x, distance);
}
/// From lane + distance; the last lanes keep their own.
template <typename T>
__device__ __forceinline__ T ShuffleDown(T x, int distance) {
  return __shfl_down_sync(0xffffffffu, x, distance);
}
/// Bit i: whether lane i says yes.
__device__ __forceinline__ uint32_t Ballot(bool yes) {
  return __ballot_sync(0xffffffffu, yes);
}

// ---- Conversions ----------------------------------------------------------

__device__ __forceinline__ float ToFloat(float x) { return x; }
__device__ __forceinline__ float ToFloat(bfloat16 x) {
  return __bfloat162float(x);
}
__device__ __forceinline__ float ToFloat(half x) { return __half2float(x); }

/// To nearest, ties to even.
template <typename T>
__device__ __forceinline__ T FromFloat(float x);
template <>
__device__ __forceinline__ float FromFloat<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ bfloat16 FromFloat<bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ __forceinline__ half FromFloat<half>(float x) {
  return __float2half_rn(x);
}

/// Two numbers of a 16-bit type in one register, `low` at the lower address.
template <typename T>
__device__ __forceinline__ uint32_t Pack(float low, float high);
template <>
__device__ __forceinline__ uint32_t Pack<bfloat16>(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
template <>
__device__ __forceinline__ uint32_t Pack<half>(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
template <typename T>
__device__ __forceinline__ float2 Unpack(uint32_t packed);
template <>
__device__ __forceinline__ float2 Unpack<bfloat16>(uint32_t packed) {
  return make_float2(__uint_as_float(packed << 16),
                     __uint_as_float(packed & 0xffff0000u));
}
template <>
__device__ __forceinline__ float2 Unpack<half>(uint32_t packed) {
  const half low = __ushort_as_half(static_cast<unsigned short>(packed));
  const half high = __ushort_as_half(static_cast<unsigned short>(packed >> 16));
  return make_float2(__half2float(low), __half2float(high));
}

/// float32 with 10 bits after the point, to nearest, ties away from zero: what
/// an operand of Mma<Tf32> holds. The rest, x - FloatOf(ToTf32(x)), is exact.
__device__ __forceinline__ uint32_t ToTf32(float x) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
}
__device__ __forceinline__ float FloatOf(uint32_t bits) {
  return __uint_as_float(bits);
}
__device__ __forceinline__ uint32_t BitsOf(float x) {
  return __float_as_uint(x);
}

// ---- Arithmetic -----------------------------------------------------------

/// 2^x within 2 units in the last place; 2^-inf = 0. Results below 2^-126 are
/// zero.
__device__ __forceinline__ float FastExp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float FusedMultiplyAdd(float a, float b, float c) {
  return __fmaf_rn(a, b, c);
}

// ---- Matrix products ------------------------------------------------------
// With group = lane / 4 and pair = 2 (lane % 4), the fragments of a warp are
//
//   d [16, 8]: d[0], d[1] at (group, pair + 0, 1); d[2], d[3] at
//     (group + 8, pair + 0, 1)
//   16-bit a [16, 16], two to a register: a[0] at (group, pair), a[1] at
//     (group + 8, pair), a[2] at (group, pair + 8), a[3] at (group + 8, pair+8)
//   16-bit b [16, 8]: b[0] at (pair, group), (pair + 1, group); b[1] 8 rows on
//   Tf32 a [16, 8], with c = lane % 4: a[0] at (group, c), a[1] at
//     (group + 8, c), a[2] at (group, c + 4), a[3] at (group + 8, c + 4)
//   Tf32 b [8, 8]: b[0] at (c, group), b[1] at (c + 4, group)

/// d += a b. T: bfloat16, half (depth 16) or Tf32 (depth 8).
template <typename T>
__device__ __forceinline__ void Mma(float (&d)[4], const uint32_t (&a)[4],
                                    uint32_t b0, uint32_t b1);
template <>
__device__ __forceinline__ void Mma<bfloat16>(float (&d)[4],
                                              const uint32_t (&a)[4],
                                              uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
      "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void Mma<half>(float (&d)[4], const uint32_t (&a)[4],
                                          uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
      "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void Mma<Tf32>(float (&d)[4], const uint32_t (&a)[4],
                                          uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, "
      "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <typename T>
__device__ __forceinline__ void Mma(float (&d)[4], const uint32_t (&a)[4],
                                    const uint32_t (&b)[2]) {
  Mma<T>(d, a, b[0], b[1]);
}

/// Four 8 x 8 matrices of 16-bit numbers out of shared memory. Lane i gives the
/// address of row i % 8 of matrix i / 8, a multiple of 16 bytes; register m
/// holds columns pair, pair + 1 of row `group` of matrix m. Transposed: of the
/// transpose of matrix m.
__device__ __forceinline__ void LoadMatrix4(uint32_t (&to)[4],
                                            const void* row) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
      : "r"(SharedAddress(row))
      : "memory");
}
__device__ __forceinline__ void LoadMatrix4Transposed(uint32_t (&to)[4],
                                                      const void* row) {
  asm volatile(
      "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
      : "r"(SharedAddress(row))
      : "memory");
}
/// Two of them: the addresses are those of lanes 0 to 15.
__device__ __forceinline__ void LoadMatrix2(uint32_t (&to)[2],
                                            const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(to[0]), "=r"(to[1])
               : "r"(SharedAddress(row))
               : "memory");
}
__device__ __forceinline__ void LoadMatrix2Transposed(uint32_t (&to)[2],
                                                      const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(to[0]), "=r"(to[1])
               : "r"(SharedAddress(row))
               : "memory");
}

// ---- Copies ---------------------------------------------------------------

/// Starts a copy of 16 bytes from global to shared memory, both at multiples of
/// 16 bytes. Only the first valid_bytes are read; zeros stand for the rest.
__device__ __forceinline__ void CopyAsync16(void* shared, const void* global,
                                            int valid_bytes = 16) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                   SharedAddress(shared)),
               "l"(__cvta_generic_to_global(global)), "r"(valid_bytes)
               : "memory");
}
/// The same for 4 bytes, at multiples of 4.
__device__ __forceinline__ void CopyAsync4(void* shared, const void* global,
                                           int valid_bytes = 4) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(
                   SharedAddress(shared)),
               "l"(__cvta_generic_to_global(global)), "r"(valid_bytes)
               : "memory");
}
/// Ends a group of this thread's copies.
__device__ __forceinline__ void CommitCopies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits until at most kPending of this thread's groups are under way. Other
/// threads see what was copied after a barrier.
template <int kPending>
__device__ __forceinline__ void WaitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

/// 4, 8 or 16 bytes of global memory (V: uint32_t, uint2, uint4, float4, ...)
/// at a multiple of their size, which no thread reads or writes again soon.
template <typename V>
__device__ __forceinline__ V LoadOnce(const void* from) {
  return __ldcs(static_cast<const V*>(from));
}
template <typename V>
__device__ __forceinline__ void StoreOnce(void* to, V value) {
  __stcs(static_cast<V*>(to), value);
}

/// The same of global or shared memory, used again.
template <typename V>
__device__ __forceinline__ V Load(const void* from) {
  return *static_cast<const V*>(from);
}
template <typename V>
__device__ __forceinline__ void Store(void* to, V value) {
  *static_cast<V*>(to) = value;
}

}  // namespace tarn::cuda
