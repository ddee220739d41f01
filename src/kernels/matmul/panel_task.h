// One piece of a product with many rows, and the sizes that cut it. Private to
// the product: matmul.cc makes the pieces, product-inl.h computes them.
#pragma once

#include <cstdint>

#include "kernels/matmul/matmul.h"

namespace tarn {

/// Some panels of one format times some rows.
struct PanelTask {
  const float* x;
  int64_t x_stride;
  const WeightMatrix* w;
  const OutputRows* y;
  int64_t row_begin, row_end;
  int64_t panel_begin, panel_end;
  MatMulFinish finish;
  /// What this thread reads after them, for a few rows to prefetch; null:
  /// nothing.
  const void* next = nullptr;
};

inline constexpr int64_t kRowChunk = 48;  // a multiple of every tile height
inline constexpr int64_t kDepth = 128;
// Distance in bytes between a single row's weights and those it prefetches:
// memory answers within some 2 KiB of its stream, and huge pages let the
// prefetch reach further.
inline constexpr int64_t kAhead = 4096;
inline constexpr int64_t kLine = 64;  // bytes of a cache line

}  // namespace tarn
