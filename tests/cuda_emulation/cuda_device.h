// What tarn's CUDA kernels use of a device, on the CPU: the same names as in
// src/kernels/cuda/device/cuda_device.h, where they are described. Sources of
// kernels compile as C++ with this file and are tested on any machine; what
// breaks the device's rules is an exception (block.h).
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "block.h"
#include "core/half.h"
#include "kernels/cuda/stream.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1)  // NOLINT: implicit
      : x(x), y(y), z(z) {}
};
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
  return {x, y, z, w};
}

namespace tarn::cuda {

struct bfloat16 {
  uint16_t bits;
};
struct half {
  uint16_t bits;
};
struct Tf32 {};

inline int MultiprocessorCount() { return emulation::Multiprocessors(); }

inline constexpr size_t kMostSharedBytes = 227 * 1024;

template <typename... Params, typename... Args>
void Launch(void (*kernel)(Params...), dim3 grid, dim3 block,
            size_t shared_bytes, CudaStream, const Args&... args) {
  static_assert((sizeof(Params) + ... + 0) <= 4096, "a kernel's arguments");
  const auto body = [&] { kernel(static_cast<Params>(args)...); };
  emulation::Run(
      {grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared_bytes,
      [](const void* f) { (*static_cast<const decltype(body)*>(f))(); }, &body);
}

inline void ZeroMemory(void* to, size_t bytes, CudaStream) {
  if (bytes != 0) std::memset(to, 0, bytes);
}

inline char* SharedMemory() { return emulation::BlockMemory(); }

inline void SyncBlock() { emulation::WaitBlock(); }
inline void SyncSome(int barrier, int threads) {
  emulation::WaitSome(barrier, threads);
}
inline void SyncWarp() {
  emulation::Together(nullptr, [](void* const*) {});
}

namespace emulation {

inline int Lane() {
  return static_cast<int>(
      (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) %
      32);
}

// x of lane `from`, which each lane names: the four shuffles.
template <typename T>
T Exchange(T x, int from) {
  struct Given {
    T x;
    int from;
    T result;
  } given{x, from, x};
  Together(&given, [](void* const* lanes) {
    for (int i = 0; i < 32; ++i) {
      auto* mine = static_cast<Given*>(lanes[i]);
      mine->result = static_cast<Given*>(lanes[mine->from])->x;
    }
  });
  return given.result;
}

}  // namespace emulation

template <typename T>
T Shuffle(T x, int lane) {
  return emulation::Exchange(x, lane & 31);
}
template <typename T>
T ShuffleXor(T x, int mask) {
  return emulation::Exchange(x, (emulation::Lane() ^ mask) & 31);
}
template <typename T>
T ShuffleUp(T x, int distance) {
  const int lane = emulation::Lane();
  return emulation::Exchange(x, lane < distance ? lane : lane - distance);
}
template <typename T>
T ShuffleDown(T x, int distance) {
  const int lane = emulation::Lane();
  return emulation::Exchange(x, lane + distance > 31 ? lane : lane + distance);
}
inline uint32_t Ballot(bool yes) {
  struct Given {
    bool yes;
    uint32_t result;
  } given{yes, 0};
  emulation::Together(&given, [](void* const* lanes) {
    uint32_t bits = 0;
    for (int i = 0; i < 32; ++i) {
      bits |= uint32_t{static_cast<Given*>(lanes[i])->yes} << i;
    }
    for (int i = 0; i < 32; ++i) static_cast<Given*>(lanes[i])->result = bits;
  });
  return given.result;
}

inline float FloatOf(uint32_t bits) { return std::bit_cast<float>(bits); }
inline uint32_t BitsOf(float x) { return std::bit_cast<uint32_t>(x); }

inline float ToFloat(float x) { return x; }
inline float ToFloat(bfloat16 x) { return BF16ToF32(x.bits); }
inline float ToFloat(half x) { return F16ToF32(x.bits); }
template <typename T>
T FromFloat(float x);
template <>
inline float FromFloat<float>(float x) {
  return x;
}
template <>
inline bfloat16 FromFloat<bfloat16>(float x) {
  return {F32ToBF16(x)};
}
template <>
inline half FromFloat<half>(float x) {
  return {F32ToF16(x)};
}
template <typename T>
uint32_t Pack(float low, float high) {
  return FromFloat<T>(low).bits | static_cast<uint32_t>(FromFloat<T>(high).bits)
                                      << 16;
}
template <typename T>
float2 Unpack(uint32_t packed) {
  return {ToFloat(T{static_cast<uint16_t>(packed)}),
          ToFloat(T{static_cast<uint16_t>(packed >> 16)})};
}
inline uint32_t ToTf32(float x) {
  const uint32_t bits = BitsOf(x);
  if ((bits & 0x7f800000u) == 0x7f800000u) return bits;
  return (bits + 0x1000u) & ~0x1fffu;
}

inline float FastExp2(float x) {
  const float y = std::exp2(x);
  return y < 0x1p-126f ? 0.0f : y;
}
inline float FusedMultiplyAdd(float a, float b, float c) {
  return std::fma(a, b, c);
}

namespace emulation {

struct MmaGiven {
  float* d;
  const uint32_t* a;
  uint32_t b[2];
};

// Entry (row, k) of a, (k, column) of b, from the lane and register that hold
// it.
template <typename T>
float EntryOfA(void* const* lanes, int row, int k) {
  const auto* given = static_cast<const MmaGiven*>(
      lanes[row % 8 * 4 + (std::is_same_v<T, Tf32> ? k % 4 : k % 8 / 2)]);
  if constexpr (std::is_same_v<T, Tf32>) {
    return FloatOf(given->a[row / 8 + 2 * (k / 4)] & ~0x1fffu);
  } else {
    const float2 two = Unpack<T>(given->a[row / 8 + 2 * (k / 8)]);
    return k % 2 == 0 ? two.x : two.y;
  }
}
template <typename T>
float EntryOfB(void* const* lanes, int k, int column) {
  const auto* given = static_cast<const MmaGiven*>(
      lanes[column * 4 + (std::is_same_v<T, Tf32> ? k % 4 : k % 8 / 2)]);
  if constexpr (std::is_same_v<T, Tf32>) {
    return FloatOf(given->b[k / 4] & ~0x1fffu);
  } else {
    const float2 two = Unpack<T>(given->b[k / 8]);
    return k % 2 == 0 ? two.x : two.y;
  }
}
template <typename T>
void MmaOfWarp(void* const* lanes) {
  constexpr int kDepth = std::is_same_v<T, Tf32> ? 8 : 16;
  float a[16][kDepth], b[kDepth][8];
  for (int k = 0; k < kDepth; ++k) {
    for (int i = 0; i < 16; ++i) a[i][k] = EntryOfA<T>(lanes, i, k);
    for (int j = 0; j < 8; ++j) b[k][j] = EntryOfB<T>(lanes, k, j);
  }
  for (int i = 0; i < 16; ++i) {
    float sum[8] = {};
    for (int k = 0; k < kDepth; ++k) {
      for (int j = 0; j < 8; ++j) sum[j] += a[i][k] * b[k][j];
    }
    for (int j = 0; j < 8; ++j) {
      auto* given = static_cast<MmaGiven*>(lanes[i % 8 * 4 + j / 2]);
      given->d[i / 8 * 2 + j % 2] += sum[j];
    }
  }
}

// Register m of lane i: two entries of matrix m, whose rows are at the
// addresses that lanes 8 m to 8 m + 7 gave.
template <int kMatrices, bool kTransposed>
void LoadMatrices(uint32_t* to, const void* row) {
  struct Given {
    uint32_t* to;
    const void* row;
  } given{to, row};
  if (Lane() < 8 * kMatrices) CheckShared(row, 16, 16);
  Together(&given, [](void* const* lanes) {
    for (int m = 0; m < kMatrices; ++m) {
      uint16_t matrix[8][8];
      for (int i = 0; i < 8; ++i) {
        std::memcpy(matrix[i], static_cast<Given*>(lanes[8 * m + i])->row, 16);
      }
      for (int i = 0; i < 32; ++i) {
        const int row = i / 4, pair = i % 4 * 2;
        const uint32_t low =
            kTransposed ? matrix[pair][row] : matrix[row][pair];
        const uint32_t high =
            kTransposed ? matrix[pair + 1][row] : matrix[row][pair + 1];
        static_cast<Given*>(lanes[i])->to[m] = low | high << 16;
      }
    }
  });
}

}  // namespace emulation

template <typename T>
void Mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  emulation::MmaGiven given{d, a, {b0, b1}};
  emulation::Together(&given, &emulation::MmaOfWarp<T>);
}
template <typename T>
void Mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  Mma<T>(d, a, b[0], b[1]);
}

inline void LoadMatrix4(uint32_t (&to)[4], const void* row) {
  emulation::LoadMatrices<4, false>(to, row);
}
inline void LoadMatrix4Transposed(uint32_t (&to)[4], const void* row) {
  emulation::LoadMatrices<4, true>(to, row);
}
inline void LoadMatrix2(uint32_t (&to)[2], const void* row) {
  emulation::LoadMatrices<2, false>(to, row);
}
inline void LoadMatrix2Transposed(uint32_t (&to)[2], const void* row) {
  emulation::LoadMatrices<2, true>(to, row);
}

inline void CopyAsync16(void* shared, const void* global,
                        int valid_bytes = 16) {
  emulation::StartCopy(shared, global, 16, static_cast<size_t>(valid_bytes));
}
inline void CopyAsync4(void* shared, const void* global, int valid_bytes = 4) {
  emulation::StartCopy(shared, global, 4, static_cast<size_t>(valid_bytes));
}
inline void CommitCopies() { emulation::EndGroup(); }
template <int kPending>
void WaitCopies() {
  emulation::FinishCopies(kPending);
}

template <typename V>
V Load(const void* from) {
  emulation::CheckAligned(from, sizeof(V));
  V value;
  std::memcpy(&value, from, sizeof(V));
  return value;
}
template <typename V>
void Store(void* to, V value) {
  emulation::CheckAligned(to, sizeof(V));
  std::memcpy(to, &value, sizeof(V));
}
template <typename V>
V LoadOnce(const void* from) {
  return Load<V>(from);
}
template <typename V>
void StoreOnce(void* to, V value) {
  Store(to, value);
}

}  // namespace tarn::cuda
