// Value heads times a factor each, added to a base or not: Mamba-2's steps
// times values, dt x, and its skip, o + D x (Dao and Gu 2024, arXiv
// 2405.21060). With f a factor of the head, one for all rows or one of each:
//   y = base + f v,  or without a base:  y = f v
// Gradient: dv = f dy, df = sum_i v_i dy_i, summed over rows where they share
// f; that of the base is dy.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "core/executor.h"

namespace tarn {

struct HeadScaleCall {
  DType dtype = DType::kF32;  // of values, base and y; arithmetic in float32
  int64_t rows = 0, heads = 1, width = 0;
  const void* values = nullptr;  // rows of [heads, width]
  int64_t stride = 0;            // elements from one row of values to the next
  const float* factors = nullptr;  // [rows, heads], or [heads] where `shared`
  bool shared = false;
  const void* base = nullptr;  // dense [rows, heads, width], or null
};

/// y: dense [rows, heads, width]; may be the base. Throws ShapeError for
/// negative sizes, ArgumentError for absent data. Allocates nothing;
/// thread-safe; the same bits for any executor. O(rows heads width).
void HeadScaleForward(const HeadScaleCall& call, void* y, Executor& executor);

/// Bytes of 64-byte aligned scratch for the gradient.
size_t HeadScaleGradientBytes(const HeadScaleCall& call);

/// grad_y, grad_values: dense [rows, heads, width]; grad_factors: as factors.
/// All are written. Throws like the forward pass.
void HeadScaleBackward(const HeadScaleCall& call, const void* grad_y,
                       void* grad_values, float* grad_factors,
                       Executor& executor, void* workspace);

/// One row of floats: y = base + f v; base: null means zeros, y may be base or
/// values. The bits of the forward pass. Arguments are not checked.
void HeadScaleRow(int64_t heads, int64_t width, const float* values,
                  const float* factors, const float* base, float* y);

}  // namespace tarn
