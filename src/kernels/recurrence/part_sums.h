// Sums of the parts of a gradient that several tasks computed.
#pragma once

#include <cstdint>

#include "core/tensor_view.h"

namespace tarn {

// `rows` rows of dq or dk: those of `count` parts, `stride` floats apart, `key`
// floats a row, added in order. The first part is changed.
struct PartSums {
  float* parts;
  int64_t stride, count, key, rows;
  const TensorView* to;
  int64_t batch, first, head;  // of the first row of `to`
};

void SumParts(const PartSums& sums);

}  // namespace tarn
