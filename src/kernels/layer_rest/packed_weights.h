// The three weights of a layer's rest as its products read them, in the order
// in which a pass meets them.
#pragma once

#include "kernels/gemm/gemm.h"
#include "kernels/layer_rest/layer_rest.h"

namespace tarn {

/// Throws as LayerRestForward, of what both passes read.
void LayerRestCheck(const LayerRestOptions& options,
                    const LayerRestShape& shape,
                    const LayerRestWeights& weights,
                    const LayerRestTensors& tensors);

class PackedWeights {
 public:
  /// Floats of memory for either pass.
  static int64_t Floats(const LayerRestShape& shape);
  /// Whole cache lines.
  static int64_t Aligned(int64_t floats) { return (floats + 15) / 16 * 16; }

  /// Products 0, 1, 2 with Wo^T, W1^T, W2^T.
  static PackedWeights Forward(const LayerRestShape& shape,
                               const LayerRestWeights& weights, float* memory,
                               Executor& executor);
  /// Products 0, 1, 2 with W2, W1, Wo.
  static PackedWeights Backward(const LayerRestShape& shape,
                                const LayerRestWeights& weights, float* memory,
                                Executor& executor);

  /// c [rows, columns] = a [rows, depth] times weight `place`; both dense.
  GemmProblem Product(int place, int64_t rows, const float* a, float* c) const;

 private:
  struct Weight {
    GemmOperand operand;
    int64_t depth = 0, columns = 0;
    float* packed = nullptr;
  };
  PackedWeights(const Weight (&weights)[3], float* memory, Executor& executor);

  Weight weights_[3];
};

}  // namespace tarn
