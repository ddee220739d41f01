// The matrices of a model and the tensors that they are made of.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "weights/weight_source.h"

namespace tarn {

/// Tensors that are rows of one matrix, hence meet the same input; or one
/// tensor that is several matrices, which may not.
struct ListedMatrix {
  std::vector<std::string> tensors;
  int64_t inputs = 0;
};

/// What PackWeights makes of a checked source, in its order, without reading
/// it. The other tensors are held as float32 whatever the format is.
std::vector<ListedMatrix> ListMatrices(const WeightSource& source,
                                       const ModelConfig& config);

}  // namespace tarn
