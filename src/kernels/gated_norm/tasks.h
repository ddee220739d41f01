// How the rows of a gated norm are cut into tasks. Plain integers, no tensor
// data.
#pragma once

#include <cstdint>

#include "kernels/gated_norm/gated_norm.h"
#include "kernels/row_tasks.h"
#include "kernels/scratch.h"

namespace tarn {

/// Rows of a call in the order [B, T, G]; each task has its own sums.
inline WideRowTasks GatedNormTasks(const TensorView& x) {
  return {x.size[0] * x.size[1] * x.size[2], x.size[3], 64};
}

/// Entries of weight, each of which has two sums: for weight and for bias.
inline int64_t GatedNormWeights(const GatedNormOptions& options) {
  return options.weight_by_group ? options.groups * options.width
                                 : options.width;
}

/// Padded rows of scratch that a worker needs for the gradient of a row.
constexpr int64_t kGatedNormScratchRows = 4;

/// Visits rows [begin, end): f(b, t, g).
template <typename F>
void ForGatedNormRows(const TensorView& x, int64_t begin, int64_t end,
                      const F& f) {
  if (begin >= end) return;
  const int64_t tokens = x.size[1], groups = x.size[2];
  int64_t g = begin % groups, t = begin / groups % tokens;
  int64_t b = begin / groups / tokens;
  for (int64_t row = begin; row < end; ++row) {
    f(b, t, g);
    if (++g < groups) continue;
    g = 0;
    if (++t < tokens) continue;
    t = 0;
    ++b;
  }
}

}  // namespace tarn
