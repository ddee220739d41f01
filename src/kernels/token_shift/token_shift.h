// Each token mixed with the one before it, as RWKV's layers do (Peng et al.
// 2024, arXiv 2404.05892; 2025, arXiv 2503.14456). With x' the row before x in
// its sequence, in front of the first one `before` or zeros, and w a row that
// all tokens share:
//   y = x + w (x' - x),  or without w:  y = x' - x
// Gradient, with dy' that of the row after it, 0 after the last one:
//   dx = dy + w (dy' - dy),  or dy' - dy
//   dbefore = w dy of the first row, or dy;  dw = dy (x' - x), summed over rows
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "core/executor.h"

namespace tarn {

struct TokenShiftCall {
  DType dtype = DType::kF32;  // of x, before and y; arithmetic in float32
  int64_t sequences = 0, seq_len = 0, width = 0;
  // [sequences + 1]: where each sequence begins among the rows, 0 first, and
  // their number at the end; null: sequences of seq_len rows.
  const int64_t* bounds = nullptr;
  const void* x = nullptr;
  int64_t stride = 0;             // elements from one row of x to the next
  const void* before = nullptr;   // dense [sequences, width]; null means zeros
  const float* weight = nullptr;  // w, [width]

  int64_t rows() const {
    return bounds == nullptr ? sequences * seq_len : bounds[sequences];
  }
};

/// y: dense [rows, width], not x. Throws ShapeError for negative sizes,
/// ArgumentError for absent data. Bounds are not checked. Allocates nothing;
/// thread-safe; the same bits for any executor and strides. O(rows width).
void TokenShiftForward(const TokenShiftCall& call, void* y, Executor& executor);

struct TokenShiftGradients {
  const void* grad_y = nullptr;  // dense [rows, width]
  void* grad_x = nullptr;        // dense [rows, width], not grad_y; written
  void* grad_before = nullptr;   // [sequences, width]; written where not null
  float* grad_weight = nullptr;  // [width]; the same
};

/// Bytes of 64-byte aligned scratch for the gradient: 0 without grad_weight.
size_t TokenShiftGradientBytes(const TokenShiftCall& call, bool grad_weight);

/// Throws like the forward pass. x and before are read for grad_weight alone.
void TokenShiftBackward(const TokenShiftCall& call,
                        const TokenShiftGradients& g, Executor& executor,
                        void* workspace);

/// One row: y = x + w (before - x). y may be any of the others. Arguments are
/// not checked.
void ShiftedRow(const float* x, const float* before, const float* weight,
                int64_t width, float* y);

}  // namespace tarn
