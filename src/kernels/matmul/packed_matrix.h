// The former name of WeightMatrix.
#pragma once

#include "kernels/matmul/weight_matrix.h"

namespace tarn {

using PackedMatrix = WeightMatrix;

}  // namespace tarn
