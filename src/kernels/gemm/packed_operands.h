// Weights as several products read them, packed in one loop.
#pragma once

#include "core/executor.h"
#include "kernels/gemm/gemm.h"

namespace tarn {

/// One right operand of a product.
struct GemmWeight {
  GemmOperand operand;  // [depth, columns]
  int64_t depth = 0, columns = 0;
};

class PackedOperands {
 public:
  static constexpr int64_t kMost = 4;

  /// Floats of memory for `count` of them, up to kMost.
  static int64_t Floats(const GemmWeight* weights, int64_t count);

  /// memory: Floats() floats at a multiple of 64 bytes, which must live as long
  /// as the products are computed. Allocates nothing.
  PackedOperands(const GemmWeight* weights, int64_t count, float* memory,
                 Executor& executor);

  /// c [rows, columns] = a [rows, depth] times operand `place`; dense rows.
  GemmProblem Product(int64_t place, int64_t rows, const float* a,
                      float* c) const;

 private:
  GemmWeight weights_[kMost];
  const float* packed_[kMost];
};

}  // namespace tarn
