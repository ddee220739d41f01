// The emulated device itself: what it computes, and that it finds kernels that
// break the device's rules.
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda_device.h"

namespace tarn::cuda {
namespace {

// Numbers that every 16-bit type and Tf32 holds exactly.
float Number(int i) { return static_cast<float>(i * 37 % 61 - 30) / 8.0f; }

template <typename F>
std::string ErrorOf(F f) {
  try {
    f();
  } catch (const std::logic_error& error) {
    return error.what();
  }
  return "";
}

TEST(Emulation, RunsEveryThreadOfEveryBlockOnce) {
  std::vector<int> count(2 * 3 * 2 * 64);
  Launch(
      +[](int* to) {
        const unsigned block =
            blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
        ++to[block * 64 + threadIdx.x + blockDim.x * threadIdx.y];
      },
      dim3(2, 3, 2), dim3(32, 2), 0, nullptr, count.data());
  EXPECT_EQ(count, std::vector<int>(count.size(), 1));
}

TEST(Emulation, EmptyGridRunsNothing) {
  int ran = 0;
  Launch(
      +[](int* to) { ++*to; }, dim3(0, 3), dim3(32), 0, nullptr, &ran);
  EXPECT_EQ(ran, 0);
}

TEST(Emulation, BarrierOrdersSharedMemory) {
  std::vector<float> out(256);
  for (int run = 0; run < 8; ++run) {
    Launch(
        +[](float* to) {
          auto* x = reinterpret_cast<float*>(SharedMemory());
          x[threadIdx.x] = Number(static_cast<int>(threadIdx.x));
          SyncBlock();
          to[threadIdx.x] = x[255 - threadIdx.x];
        },
        dim3(1), dim3(256), 1024, nullptr, out.data());
    for (int i = 0; i < 256; ++i) {
      EXPECT_EQ(out[static_cast<size_t>(i)], Number(255 - i)) << i;
    }
  }
}

// Half of the block hands its values to the other half by a barrier of both,
// and each half has a barrier that the other does not use.
TEST(Emulation, NamedBarriers) {
  std::vector<float> out(64);
  Launch(
      +[](float* to) {
        auto* x = reinterpret_cast<float*>(SharedMemory());
        const int half = static_cast<int>(threadIdx.x) / 64;
        const int at = static_cast<int>(threadIdx.x) % 64;
        if (half == 0) x[at] = Number(at);
        SyncSome(1 + half, 64);
        SyncSome(3, 128);
        if (half == 1) to[at] = x[63 - at];
      },
      dim3(1), dim3(128), 256, nullptr, out.data());
  for (int i = 0; i < 64; ++i)
    EXPECT_EQ(out[static_cast<size_t>(i)], Number(63 - i));
}

// Without a barrier the order of threads shows, sooner or later.
TEST(Emulation, MissingBarrierShows) {
  bool differs = false;
  for (int run = 0; run < 8; ++run) {
    std::vector<float> out(64);
    Launch(
        +[](float* to) {
          auto* x = reinterpret_cast<float*>(SharedMemory());
          x[threadIdx.x] = 1.0f;
          to[threadIdx.x] = x[63 - threadIdx.x];
        },
        dim3(1), dim3(64), 256, nullptr, out.data());
    for (const float value : out) differs = differs || std::isnan(value);
  }
  EXPECT_TRUE(differs);
}

TEST(Emulation, FindsDivergence) {
  const auto block = +[](int) {
    if (threadIdx.x < 32) SyncBlock();
  };
  EXPECT_NE(
      ErrorOf([&] { Launch(block, 1, 64, 0, nullptr, 0); }).find("divergence"),
      std::string::npos);
  const auto warp = +[](int) {
    if (threadIdx.x != 7) SyncWarp();
  };
  EXPECT_NE(
      ErrorOf([&] { Launch(warp, 1, 32, 0, nullptr, 0); }).find("divergence"),
      std::string::npos);
  const auto kinds = +[](int) {
    if (threadIdx.x < 16) {
      ShuffleXor(1, 1);
    } else {
      Ballot(true);
    }
  };
  EXPECT_NE(
      ErrorOf([&] { Launch(kinds, 1, 32, 0, nullptr, 0); }).find("divergence"),
      std::string::npos);
  // What was left in the middle does not disturb the next launch.
  int ran = 0;
  Launch(
      +[](int* to) { ++*to; }, 1, 32, 0, nullptr, &ran);
  EXPECT_EQ(ran, 32);
}

TEST(Emulation, FindsWritesBeyondSharedMemory) {
  const auto kernel = +[](int at) { SharedMemory()[at] = 1; };
  EXPECT_EQ(ErrorOf([&] { Launch(kernel, 1, 32, 64, nullptr, 63); }), "");
  for (const int at : {64, -1}) {
    EXPECT_NE(ErrorOf([&] {
                Launch(kernel, 1, 32, 64, nullptr, at);
              }).find("shared memory"),
              std::string::npos);
  }
  EXPECT_NE(ErrorOf([&] { Launch(kernel, 1, 32, 228 * 1024, nullptr, 0); }),
            "");
  EXPECT_NE(ErrorOf([&] { Launch(kernel, 1, 33, 0, nullptr, 0); }), "");
}

TEST(Emulation, ShufflesAndBallot) {
  struct Result {
    int from, exchanged, up, down;
    uint32_t odd;
  };
  std::vector<Result> out(64);
  Launch(
      +[](Result* to) {
        const int i = static_cast<int>(threadIdx.x);
        to[i].from = Shuffle(i, 5);
        to[i].exchanged = ShuffleXor(i, 6);
        to[i].up = ShuffleUp(i, 3);
        to[i].down = ShuffleDown(i, 3);
        to[i].odd = Ballot(i % 2 == 1);
      },
      1, 64, 0, nullptr, out.data());
  for (int i = 0; i < 64; ++i) {
    const Result& r = out[static_cast<size_t>(i)];
    const int warp = i / 32 * 32, lane = i % 32;
    EXPECT_EQ(r.from, warp + 5);
    EXPECT_EQ(r.exchanged, warp + (lane ^ 6));
    EXPECT_EQ(r.up, lane < 3 ? i : i - 3);
    EXPECT_EQ(r.down, lane > 28 ? i : i + 3);
    EXPECT_EQ(r.odd, 0xaaaaaaaau);
  }
}

// a [16, depth], b [depth, 8], d [16, 8], all row by row.
template <typename T>
void MmaKernel(const float* a, const float* b, float* d) {
  const int lane = static_cast<int>(threadIdx.x);
  const int group = lane / 4, pair = lane % 4 * 2;
  uint32_t fa[4], fb[2];
  for (int r = 0; r < 4; ++r) {
    const int row = group + r % 2 * 8;
    if constexpr (std::is_same_v<T, Tf32>) {
      fa[r] = ToTf32(a[row * 8 + pair / 2 + r / 2 * 4]);
    } else {
      const float* at = a + row * 16 + pair + r / 2 * 8;
      fa[r] = Pack<T>(at[0], at[1]);
    }
  }
  for (int r = 0; r < 2; ++r) {
    if constexpr (std::is_same_v<T, Tf32>) {
      fb[r] = ToTf32(b[(pair / 2 + r * 4) * 8 + group]);
    } else {
      const float* at = b + (pair + r * 8) * 8 + group;
      fb[r] = Pack<T>(at[0], at[8]);
    }
  }
  float fd[4];
  for (int r = 0; r < 4; ++r) {
    fd[r] = d[(group + r / 2 * 8) * 8 + pair + r % 2];
  }
  Mma<T>(fd, fa, fb);
  for (int r = 0; r < 4; ++r) {
    d[(group + r / 2 * 8) * 8 + pair + r % 2] = fd[r];
  }
}

template <typename T>
void TestMma(int depth) {
  std::vector<float> a(static_cast<size_t>(16 * depth)),
      b(static_cast<size_t>(depth * 8)), d(16 * 8);
  for (size_t i = 0; i < a.size(); ++i) a[i] = Number(static_cast<int>(i));
  for (size_t i = 0; i < b.size(); ++i) b[i] = Number(static_cast<int>(i) + 7);
  for (size_t i = 0; i < d.size(); ++i) d[i] = Number(static_cast<int>(i) + 3);
  std::vector<double> want(d.begin(), d.end());
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 8; ++j) {
      for (int k = 0; k < depth; ++k) {
        want[static_cast<size_t>(i * 8 + j)] +=
            double{a[static_cast<size_t>(i * depth + k)]} *
            b[static_cast<size_t>(k * 8 + j)];
      }
    }
  }
  Launch(&MmaKernel<T>, 1, 32, 0, nullptr, a.data(), b.data(), d.data());
  // Sums of products of small multiples of 1/8 are exact in float.
  for (size_t i = 0; i < d.size(); ++i) EXPECT_EQ(d[i], want[i]) << i;
}

TEST(Emulation, MmaBfloat16) { TestMma<bfloat16>(16); }
TEST(Emulation, MmaHalf) { TestMma<half>(16); }
TEST(Emulation, MmaTf32) { TestMma<Tf32>(8); }

// Registers of the fragments, as the comment of cuda_device.h gives them.
TEST(Emulation, LoadMatrix) {
  struct Result {
    uint32_t plain[4], transposed[4], two[2], two_transposed[2];
  };
  std::vector<Result> out(32);
  Launch(
      +[](Result* to) {
        const int lane = static_cast<int>(threadIdx.x);
        auto* x = reinterpret_cast<uint16_t*>(SharedMemory());  // [32, 24]
        for (int c = 0; c < 8; ++c) {
          x[lane * 24 + c] = static_cast<uint16_t>(lane * 8 + c);
        }
        SyncBlock();
        LoadMatrix4(to[lane].plain, x + lane * 24);
        LoadMatrix4Transposed(to[lane].transposed, x + lane * 24);
        LoadMatrix2(to[lane].two, x + lane * 24);
        LoadMatrix2Transposed(to[lane].two_transposed, x + lane * 24);
      },
      1, 32, 32 * 48, nullptr, out.data());
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const uint32_t row = lane / 4, pair = lane % 4 * 2;
    const Result& r = out[lane];
    for (uint32_t m = 0; m < 4; ++m) {
      const auto entry = [m](uint32_t i, uint32_t j) {
        return (m * 8 + i) * 8 + j;
      };
      const uint32_t plain = entry(row, pair) | entry(row, pair + 1) << 16;
      const uint32_t transposed = entry(pair, row) | entry(pair + 1, row) << 16;
      EXPECT_EQ(r.plain[m], plain);
      EXPECT_EQ(r.transposed[m], transposed);
      if (m > 1) continue;
      EXPECT_EQ(r.two[m], plain);
      EXPECT_EQ(r.two_transposed[m], transposed);
    }
  }
  const auto crooked = +[](int) {
    uint32_t to[4];
    LoadMatrix4(to, SharedMemory() + 8);
  };
  EXPECT_NE(ErrorOf([&] { Launch(crooked, 1, 32, 1024, nullptr, 0); }), "");
}

TEST(Emulation, CopiesArriveWhenWaitedFor) {
  alignas(16) float from[8], seen[16];
  for (int i = 0; i < 8; ++i) from[i] = Number(i);
  Launch(
      +[](const float* from, float* seen) {
        auto* x = reinterpret_cast<float*>(SharedMemory());
        if (threadIdx.x == 0) {
          for (int i = 0; i < 8; ++i) x[i] = 5.0f;
          CopyAsync16(x, from);
          CommitCopies();
          CopyAsync16(x + 4, from + 4, 8);
          CommitCopies();
          for (int i = 0; i < 4; ++i) seen[i] = x[i];
          WaitCopies<1>();
          for (int i = 0; i < 8; ++i) seen[4 + i] = x[i];
          WaitCopies<0>();
          for (int i = 4; i < 8; ++i) seen[8 + i] = x[i];
        }
      },
      1, 32, 32, nullptr, static_cast<const float*>(from),
      static_cast<float*>(seen));
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(std::isnan(seen[i])) << i;
    EXPECT_EQ(seen[4 + i], from[i]) << i;
    EXPECT_TRUE(std::isnan(seen[8 + i])) << i;
  }
  // Half of the second copy is valid, zeros are the rest.
  EXPECT_EQ(seen[12], from[4]);
  EXPECT_EQ(seen[13], from[5]);
  EXPECT_EQ(seen[14], 0.0f);
  EXPECT_EQ(seen[15], 0.0f);
}

TEST(Emulation, Conversions) {
  EXPECT_EQ(ToFloat(FromFloat<bfloat16>(1.00390625f)), 1.0f);  // tie to even
  EXPECT_EQ(ToFloat(FromFloat<half>(2049.0f)), 2048.0f);
  const float2 two = Unpack<half>(Pack<half>(1.5f, -2.25f));
  EXPECT_EQ(two.x, 1.5f);
  EXPECT_EQ(two.y, -2.25f);
  EXPECT_EQ(FloatOf(ToTf32(1.0f + 0x1p-11f)), 1.0f + 0x1p-10f);  // tie: away
  EXPECT_EQ(FloatOf(ToTf32(1.0f + 0x1p-12f)), 1.0f);
  EXPECT_EQ(FastExp2(-INFINITY), 0.0f);
  EXPECT_EQ(FastExp2(3.0f), 8.0f);
}

}  // namespace
}  // namespace tarn::cuda
