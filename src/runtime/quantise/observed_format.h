// A weight format that hands out the inputs of its products: float32 in all
// else. A matrix in it needs nothing from product code, so that models that are
// not observed pay nothing.
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/matmul/weight_format.h"

namespace tarn {

/// Must outlive its matrices; matrices have no other format beside it. An
/// executor of one worker is wanted: inputs come in the order of products.
class ObservedFormat final : public WeightFormat {
 public:
  /// Takes the inputs [count, inputs of the matrix], `stride` floats apart, of
  /// a product, each once.
  using Taker =
      std::function<void(const float* rows, int64_t stride, int64_t count)>;
  explicit ObservedFormat(Taker taker);
  ObservedFormat(const ObservedFormat&) = delete;
  ObservedFormat& operator=(const ObservedFormat&) = delete;

 private:
  const Taker taker_;
};

}  // namespace tarn
