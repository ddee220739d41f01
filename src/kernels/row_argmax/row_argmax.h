// The place of the largest number of a row: greedy decoding.
#pragma once

#include <cstdint>

namespace tarn {

/// The first place of the largest of `count` >= 1 numbers; -1 if one of them is
/// NaN or +infinity. O(count), memory-bound; thread-safe.
int64_t RowArgmax(const float* row, int64_t count);

}  // namespace tarn
