// What a transformer layer does before its mixer, as one pass over rows: a norm
// and the maps that read it (queries, keys, values), side by side in one
// result; and the gradient.
//   n = norm(x),  y_i = n W_i^T + b_i,  y = [y_0 y_1 ...]
// The kinds of norm are those of kernels/residual_norm.
#pragma once

#include <cstdint>

#include "core/executor.h"
#include "core/norm_kind.h"

namespace tarn {

constexpr int64_t kMostHeadMaps = 4;

struct LayerHeadsMap {
  const float* weight = nullptr;  // W [outputs, D], dense
  const float* bias = nullptr;    // [outputs]; null: zeros
  int64_t outputs = 0;
};

/// Dense rows. Without gamma there is no norm: n is x, and its pointer null.
struct LayerHeadsCall {
  int64_t rows = 0, width = 0;   // width: D
  const float* x = nullptr;      // [rows, D]
  const float* gamma = nullptr;  // [D]
  const float* beta = nullptr;   // [D], of a layer norm
  double eps = 1e-5;
  NormKind norm_kind = NormKind::kLayer;
  const LayerHeadsMap* maps = nullptr;
  int64_t count = 0;         // number of maps, 1 to kMostHeadMaps
  float* y = nullptr;        // [rows, sum of outputs]
  float* n = nullptr;        // [rows, D], scratch: holds no result
  float* mean = nullptr;     // [rows], of a layer norm, kept for the gradient
  float* inverse = nullptr;  // [rows], kept

  int64_t outputs() const {
    int64_t sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += maps[i].outputs;
    return sum;
  }
};

/// Floats of workspace: a copy of the weights and 250 KiB per worker; backward
/// also sums of a few widths for every task of some 36 rows.
int64_t LayerHeadsWorkspaceFloats(const LayerHeadsCall& call,
                                  const Executor& executor);
int64_t LayerHeadsGradientWorkspaceFloats(const LayerHeadsCall& call,
                                          const Executor& executor);

/// The bits are the same for any executor. workspace must be at a multiple of
/// 64 bytes. Allocates nothing; thread-safe. Throws ShapeError for sizes below
/// 0 and widths of 0, ArgumentError for null data and a wrong number of maps.
void LayerHeadsForward(const LayerHeadsCall& call, float* workspace,
                       Executor& executor);

/// `call` as the forward pass left it; y is not read, and n is recomputed from
/// x, which takes less time than its memory is worth. null: not wanted.
struct LayerHeadsGradients {
  const float* grad_y = nullptr;  // [rows, sum of outputs]
  float* grad_x = nullptr;        // [rows, D]
  float* grad_gamma = nullptr;    // [D]
  float* grad_beta = nullptr;     // [D]
  float* grad_weights[kMostHeadMaps] = {};
  float* grad_biases[kMostHeadMaps] = {};
};

void LayerHeadsBackward(const LayerHeadsCall& call,
                        const LayerHeadsGradients& gradients, float* workspace,
                        Executor& executor);

}  // namespace tarn
