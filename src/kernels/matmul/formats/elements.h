// Panels of single numbers: panel[k][j] is W[j, k], so that a product with one
// row of inputs reads memory from front to back.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/matmul/weight_format.h"

namespace tarn {

/// Columns of W taken at a time: 64 rows of 16 floats stay in L1 while they are
/// transposed.
inline constexpr int64_t kPackBlock = 16;

template <typename T>
int64_t ElementPanelBytes(int64_t inputs) {
  return inputs * kPanelOutputs * static_cast<int64_t>(sizeof(T));
}

/// WeightFormat::pack with narrow(float) for each number.
template <typename T, typename Narrow>
void PackElements(const float* weights, int64_t rows, int64_t inputs,
                  int64_t column, uint8_t* panel, const Narrow& narrow) {
  T* to = reinterpret_cast<T*>(panel);
  for (int64_t begin = 0; begin < inputs; begin += kPackBlock) {
    const int64_t end = std::min(begin + kPackBlock, inputs);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t k = begin; k < end; ++k) {
        to[k * kPanelOutputs + column + r] = narrow(weights[r * inputs + k]);
      }
    }
  }
}

/// WeightFormat::read with widen(T) for each number.
template <typename T, typename Widen>
void ReadElements(const uint8_t* panel, int64_t inputs, int64_t column,
                  float* out, const Widen& widen) {
  const T* from = reinterpret_cast<const T*>(panel) + column;
  for (int64_t k = 0; k < inputs; ++k) out[k] = widen(from[k * kPanelOutputs]);
}

}  // namespace tarn
