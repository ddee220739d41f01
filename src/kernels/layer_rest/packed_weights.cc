#include "kernels/layer_rest/packed_weights.h"

namespace tarn {

int64_t PackedWeights::Floats(const LayerRestShape& s) {
  // A pass backward has the same three sizes turned around; blocks are square
  // only by chance, so room is left for the larger.
  const auto room = [](int64_t a, int64_t b) {
    return std::max(GemmPackedFloats(a, b), GemmPackedFloats(b, a));
  };
  return room(s.mixed, s.width) + 2 * room(s.width, s.hidden);
}

PackedWeights::PackedWeights(const Weight (&weights)[3], float* memory,
                             Executor& executor) {
  int64_t blocks = 0;
  for (int i = 0; i < 3; ++i) {
    weights_[i] = weights[i];
    weights_[i].packed = memory;
    memory += GemmPackedFloats(weights[i].depth, weights[i].columns);
    blocks += GemmBlocks(weights[i].depth, weights[i].columns);
  }
  executor.ParallelFor(blocks, [&](int64_t block, int) {
    const Weight* w = weights_;
    for (int64_t own; block >= (own = GemmBlocks(w->depth, w->columns)); ++w) {
      block -= own;
    }
    GemmPackBlock(w->operand, w->depth, w->columns, block, w->packed);
  });
}

PackedWeights PackedWeights::Forward(const LayerRestShape& s,
                                     const LayerRestWeights& w, float* memory,
                                     Executor& executor) {
  const Weight weights[3] = {
      {{w.out_weight, s.mixed, true}, s.mixed, s.width},
      {{w.weight1, s.width, true}, s.width, s.hidden},
      {{w.weight2, s.hidden, true}, s.hidden, s.width}};
  return PackedWeights(weights, memory, executor);
}

PackedWeights PackedWeights::Backward(const LayerRestShape& s,
                                      const LayerRestWeights& w, float* memory,
                                      Executor& executor) {
  const Weight weights[3] = {
      {{w.weight2, s.hidden, false}, s.width, s.hidden},
      {{w.weight1, s.width, false}, s.hidden, s.width},
      {{w.out_weight, s.mixed, false}, s.width, s.mixed}};
  return PackedWeights(weights, memory, executor);
}

GemmProblem PackedWeights::Product(int place, int64_t rows, const float* a,
                                   float* c) const {
  const Weight& w = weights_[place];
  GemmProblem problem;
  problem.rows = rows;
  problem.columns = w.columns;
  problem.depth = w.depth;
  problem.a = {a, w.depth, false};
  problem.c = c;
  problem.c_stride = w.columns;
  problem.packed_b = w.packed;
  return problem;
}

}  // namespace tarn
