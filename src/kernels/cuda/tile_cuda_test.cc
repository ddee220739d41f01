// Tile products against sums in double, for every type and every way to read
// the operands.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/cuda/tile.cuh"

namespace tarn::cuda {
namespace {

constexpr int kWide = 32;

// One warp: acc [16, 32] = A B [16, 64] [64, 32] with rows m0 of A, columns n0
// of B; then (A B) B2 of B's first 32 rows, out of the accumulators.
template <typename T, bool kTransposedA, bool kTransposedB>
void Products(const T* a, const T* b, const float* weights, float* product,
              float* second, float* scaled) {
  T* x = reinterpret_cast<T*>(SharedMemory());
  T* y = x + kChunk * Stride<T>(kChunk);
  float* w = reinterpret_cast<float*>(y + kChunk * Stride<T>(kChunk));
  const Rows<T> rows_a{const_cast<T*>(a), kChunk, kChunk, true};
  const Rows<T> rows_b{const_cast<T*>(b), kChunk, kChunk, false};
  CopyTokens<T, kChunk, 32>(x, rows_a, 0, [](int) { return true; });
  CopyTokens<T, kChunk, 32>(y, rows_b, 0, [](int) { return true; });
  for (int i = 0; i < 2; ++i)
    w[threadIdx.x + 32 * i] = weights[threadIdx.x + 32 * i];
  CommitCopies();
  WaitCopies<0>();
  SyncBlock();
  constexpr int kStride = Stride<T>(kChunk);
  float acc[4][4], again[4][4], weighted[2][4];
  Clear(acc);
  WarpProduct<T, 4, kTransposedA, kTransposedB>(acc, x, kStride, 16, y, kStride,
                                                32, kChunk);
  Clear(again);
  WarpProduct<T, 4, 4, kTransposedB>(again, acc, y, kStride, 16);
  Clear(weighted);
  for (int k = 0; k < kChunk; k += 16) {
    FragmentA<T> left;
    LoadATransposed(left, x, kStride, 0, k);
    ScaleColumns(left, w, k);
    FragmentB<T> right[2];
    LoadB(right, y, kStride, k, 0);
    for (int n = 0; n < 2; ++n) MultiplyAdd(weighted[n], left, right[n]);
  }
  const LanePlace at;
  for (int n = 0; n < 4; ++n) {
    for (int i = 0; i < 4; ++i) {
      const int place =
          (at.group + i / 2 * 8) * kWide + 8 * n + at.pair + i % 2;
      product[place] = acc[n][i];
      second[place] = again[n][i];
      if (n < 2) scaled[place] = weighted[n][i];
    }
  }
}

// What an operand holds of x.
template <typename T>
double Held(double x) {
  return ToFloat(FromFloat<T>(static_cast<float>(x)));
}

template <typename T, bool kTransposedA, bool kTransposedB>
void Check() {
  std::mt19937 rng(5);
  std::normal_distribution<float> normal;
  std::vector<T> a(kChunk * kChunk), b(kChunk * kChunk);
  std::vector<float> weights(kChunk);
  for (T& x : a) x = FromFloat<T>(normal(rng));
  for (T& x : b) x = FromFloat<T>(normal(rng));
  for (float& x : weights) x = normal(rng);
  std::vector<float> product(16 * kWide), second(product), scaled(product);
  const size_t bytes = 2 * kChunk * Stride<T>(kChunk) * sizeof(T) + kChunk * 4;
  Launch(Products<T, kTransposedA, kTransposedB>, 1, 32, bytes, nullptr,
         a.data(), b.data(), weights.data(), product.data(), second.data(),
         scaled.data());
  const auto A = [&](int m, int k) -> double {
    return ToFloat(a[kTransposedA ? k * kChunk + m : m * kChunk + k]);
  };
  const auto B = [&](int k, int n) -> double {
    return ToFloat(b[kTransposedB ? n * kChunk + k : k * kChunk + n]);
  };
  for (int m = 0; m < 16; ++m) {
    for (int n = 0; n < kWide; ++n) {
      double sum = 0, twice = 0, weighted = 0;
      for (int k = 0; k < kChunk; ++k) {
        sum += A(16 + m, k) * B(k, 32 + n);
        weighted += Held<T>(double{ToFloat(a[k * kChunk + m])} * weights[k]) *
                    ToFloat(b[k * kChunk + n]);
      }
      for (int k = 0; k < kWide; ++k) {
        twice += Held<T>(product[m * kWide + k]) * B(k, 16 + n);
      }
      // Terms have a size of 1, or 8 in the second product.
      EXPECT_NEAR(product[m * kWide + n], sum, 1e-5) << m << " " << n;
      EXPECT_NEAR(second[m * kWide + n], twice, 1e-4) << m << " " << n;
      if (n < 16) EXPECT_NEAR(scaled[m * kWide + n], weighted, 1e-5);
    }
  }
}

template <typename T>
void CheckAll() {
  Check<T, false, false>();
  Check<T, false, true>();
  Check<T, true, false>();
  Check<T, true, true>();
}

TEST(Tile, Float32) { CheckAll<float>(); }
TEST(Tile, BFloat16) { CheckAll<bfloat16>(); }
TEST(Tile, Float16) { CheckAll<half>(); }

}  // namespace
}  // namespace tarn::cuda
