#include "kernels/gemm/packed_operands.h"

namespace tarn {

int64_t PackedOperands::Floats(const GemmWeight* weights, int64_t count) {
  int64_t floats = 0;
  for (int64_t i = 0; i < count; ++i) {
    floats += GemmPackedFloats(weights[i].depth, weights[i].columns);
  }
  return floats;
}

PackedOperands::PackedOperands(const GemmWeight* weights, int64_t count,
                               float* memory, Executor& executor) {
  float* places[kMost];
  int64_t blocks = 0;
  for (int64_t i = 0; i < count; ++i) {
    weights_[i] = weights[i];
    packed_[i] = places[i] = memory;
    memory += GemmPackedFloats(weights[i].depth, weights[i].columns);
    blocks += GemmBlocks(weights[i].depth, weights[i].columns);
  }
  executor.ParallelFor(blocks, [&](int64_t block, int) {
    int64_t i = 0;
    for (int64_t own;
         block >= (own = GemmBlocks(weights_[i].depth, weights_[i].columns));
         ++i) {
      block -= own;
    }
    GemmPackBlock(weights_[i].operand, weights_[i].depth, weights_[i].columns,
                  block, places[i]);
  });
}

GemmProblem PackedOperands::Product(int64_t place, int64_t rows, const float* a,
                                    float* c) const {
  const GemmWeight& w = weights_[place];
  GemmProblem problem;
  problem.rows = rows;
  problem.columns = w.columns;
  problem.depth = w.depth;
  problem.a = {a, w.depth, false};
  problem.c = c;
  problem.c_stride = w.columns;
  problem.packed_b = packed_[place];
  return problem;
}

}  // namespace tarn
