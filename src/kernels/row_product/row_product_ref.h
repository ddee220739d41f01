// The same maps in double, by definition.
#pragma once

#include <cstdint>
#include <vector>

namespace tarn {

/// y [rows, outputs] of x [rows, inputs], weight [outputs, inputs] and bias
/// [outputs] or none.
std::vector<double> RowProductRef(const std::vector<float>& x, int64_t rows,
                                  const std::vector<float>& weight,
                                  const std::vector<float>& bias,
                                  int64_t outputs);

}  // namespace tarn
