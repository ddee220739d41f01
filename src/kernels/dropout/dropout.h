// Dropout as a function of (seed, element): nothing is stored for the gradient.
//   y = x * s,  s = 0 with probability p, else 1 / (1 - p)
// Srivastava et al. 2014, inverted form. p counts in 65,536ths.
//
// Element i of row r of a [rows, width] tensor reads Philox4x32-10 (core/rng.h)
// with stream 0. Rows are cut into blocks of 128 elements, which are numbered
// through all rows; element e of block b takes the counter 16 b + e % 16 and,
// of its eight 16-bit halves, number e / 16, low half first. So the mask
// depends on seed and width alone, not on target, threads or the order of rows.
#pragma once

#include <cstdint>

#include "core/executor.h"

namespace tarn {

/// probability in [0, 1); 0 is off and draws nothing.
struct DropoutOptions {
  double probability = 0.0;
  uint64_t seed = 0;
  int64_t first_row = 0;  // the tensor's row that is row 0 of a call
};

/// Elements that share one set of counters.
constexpr int64_t kDropoutBlock = 128;

/// What kernels read: an element is kept when its 16 bits are >= threshold.
struct DropoutKey {
  uint64_t seed = 0;
  int64_t first_row = 0;
  int32_t threshold = 0;  // in [0, 65536); 0: nothing is dropped
  float scale = 1.0f;     // of what is kept: 65536 / (65536 - threshold)
  bool active() const { return threshold > 0; }
};

/// Throws ArgumentError for a probability outside [0, 1) or one that rounds to
/// 1 in 65,536ths.
DropoutKey MakeDropoutKey(const DropoutOptions& options);

/// scales[rows, width] dense: the factor s of each element. Throws ShapeError
/// for negative sizes, and ArgumentError. O(rows width), allocates nothing.
void DropoutScales(const DropoutOptions& options, int64_t rows, int64_t width,
                   float* scales, Executor& executor);

}  // namespace tarn
