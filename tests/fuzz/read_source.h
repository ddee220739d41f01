// Every number of a source of weights.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "fuzz/fuzz_input.h"
#include "weights/weight_source.h"

namespace tarn::fuzz {

/// Reads all rows, as float32 and as stored, some at a time.
inline void ReadSource(const WeightSource& source) {
  constexpr int64_t kMostNumbers = 1 << 16;
  for (const WeightTensor& tensor : source.tensors()) {
    Require(source.Find(tensor.name) == &tensor, "a tensor that is not found");
    const int64_t columns = tensor.columns();
    const int64_t step =
        std::max<int64_t>(1, kMostNumbers / std::max<int64_t>(1, columns));
    // Rows without numbers may be any count: there is nothing to read of them.
    const int64_t rows = columns == 0 ? 0 : tensor.rows();
    for (int64_t row = 0; row < rows; row += step) {
      const WeightRange some = {row, std::min(rows, row + step)};
      std::vector<float> values(static_cast<size_t>(some.size() * columns));
      source.ReadRows(tensor, some, values.data());
      std::vector<uint8_t> stored(
          static_cast<size_t>(some.size() * tensor.encoding->Bytes(columns)));
      source.ReadStoredRows(tensor, some, stored.data());
    }
  }
}

}  // namespace tarn::fuzz
