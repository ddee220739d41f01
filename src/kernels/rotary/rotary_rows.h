// Rotary positions (Su et al. 2021, arXiv 2104.09864) of rows of any float
// dtype by tables of cosines and sines: the pairs (a, b) of a head, which are
// its entries (i, i + R), or (2 i, 2 i + 1) interleaved, become
//   a' = a cos_i - b sin_i,   b' = b cos_i + a sin_i,   i < R.
// Entries from 2 R on are copied. The gradient is the inverse rotation.
#pragma once

#include <cstdint>

#include "core/executor.h"
#include "core/tensor_view.h"

namespace tarn {

struct RotaryRowsCall {
  TensorView x;                // [B, T, H, W], float32, bfloat16 or float16
  const float* cos = nullptr;  // [T, R], or [B, T, R] with by_batch; dense
  const float* sin = nullptr;
  int64_t pairs = 0;  // R, 2 R <= W
  bool by_batch = false;
  bool interleaved = false;
  bool inverse = false;  // sin with the other sign
};

/// out: shape and dtype of x; may be x. Arithmetic in float32, one rounding.
/// Throws ShapeError, DTypeError or ArgumentError naming the argument.
/// Allocates nothing; thread-safe; the same bits for any executor and strides.
/// O(B T H W).
void RotateRows(const RotaryRowsCall& call, const TensorView& out,
                Executor& executor);

}  // namespace tarn
