// Weights as int8 with a float32 scale for each group of 32 inputs of an
// output: a format of the tests, which product code does not know.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/matmul/weight_format.h"

namespace tarn::testing {

extern const WeightFormat kInt8Groups;

/// The weights [rows, inputs] as the format holds them: scale times code, with
/// one rounding to float32.
std::vector<float> RoundedToInt8Groups(const std::vector<float>& weights,
                                       int64_t rows, int64_t inputs);

}  // namespace tarn::testing
