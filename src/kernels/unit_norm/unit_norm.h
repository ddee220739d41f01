// Rows of length 1, as the delta rule wants its keys (Yang et al. 2024, arXiv
// 2406.06484): y = x / sqrt(sum_i x_i^2 + eps). Gradient, with r the reciprocal
// of that root: dx = r dy - r^3 (sum_i x_i dy_i) x.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/executor.h"

namespace tarn {

struct UnitNormCall {
  DType dtype = DType::kF32;  // of all tensors; arithmetic in float32
  int64_t rows = 0, heads = 1, width = 0;
  const void* x = nullptr;  // rows of [heads, width]
  int64_t stride = 0;       // elements from one row of x to the next
  float eps = 1e-6f;
};

/// y: dense [rows, heads, width]; may be x where that is dense. Throws
/// ShapeError for negative sizes, ArgumentError for absent data. Allocates
/// nothing; thread-safe; the same bits for any executor. O(rows heads width).
void UnitNormForward(const UnitNormCall& call, void* y, Executor& executor);

/// grad_y, grad_x: dense. Throws like the forward pass.
void UnitNormBackward(const UnitNormCall& call, const void* grad_y,
                      void* grad_x, Executor& executor);

/// One row of floats in place: the bits of the forward pass. Arguments are not
/// checked.
void UnitRow(int64_t heads, int64_t width, float eps, float* x);

}  // namespace tarn
