// Affine maps of few rows with weights as they are trained, row by row of W:
//   y[m, n] = bias[n] + sum_k x[m, k] W[n, k]
// A recurrent step reads every weight once and multiplies it with a row or a
// few: such a product is bound by memory, and packing would read it twice.
#pragma once

#include <cstdint>

#include "core/executor.h"

namespace tarn {

/// One map of several that read the same rows.
struct RowProductMap {
  const float* weight = nullptr;  // [outputs, inputs], dense
  const float* bias = nullptr;    // [outputs]; null: zeros
  int64_t outputs = 0;
  float* y = nullptr;  // [rows, outputs], dense
};

/// x [rows, inputs], dense; `count` maps; no y overlaps x or another y. Tasks
/// are the same parts of the weights at every call of one shape: if the
/// executor gives a task to the same thread again, its part stays in that
/// core's cache. The order of a sum depends on `inputs` and the SIMD target
/// alone: the same bits for any executor, and for a row alone or among others.
/// Allocates nothing; thread-safe. Throws ShapeError for negative sizes,
/// ArgumentError for null data of a size that is not 0.
void RowProduct(const float* x, int64_t rows, int64_t inputs,
                const RowProductMap* maps, int64_t count, Executor& executor);

/// Only outputs [begin, end) of one map, on the calling thread, with the same
/// bits. begin: a multiple of four; end: a multiple of four too, or all
/// outputs. Arguments are not checked.
void RowProductPart(const float* x, int64_t rows, int64_t inputs,
                    const RowProductMap& map, int64_t begin, int64_t end);

}  // namespace tarn
