// What a transformer layer does after its mixer, as one pass over rows: output
// projection, residual, norm, feed-forward network, residual; and the gradient.
//   s = x + d1 (mixed Wo^T + bo),  n = norm(s)
//   h = d2 act(n W1^T + b1)
//   y = base + d3 (h W2^T + b2)
// d1, d2, d3: the factors of dropout.h. Pre-norm (Xiong et al. 2020): base = s;
// post-norm (Vaswani et al. 2017): base = n and y goes through a norm of its
// own. A worker takes some rows through the whole chain: intermediate results
// stay in its cache, and there is one parallel loop where separate operators
// need seven.
#pragma once

#include <cstdint>

#include "core/executor.h"
#include "kernels/bias_activation/bias_activation.h"
#include "kernels/residual_norm/residual_norm.h"

namespace tarn {

struct LayerRestShape {
  int64_t rows = 0;
  int64_t width = 0;   // D of x, s, n, y
  int64_t mixed = 0;   // V, of the mixer's result
  int64_t hidden = 0;  // F, of the feed-forward network
};

struct LayerRestOptions {
  Nonlinearity activation = Nonlinearity::kGelu;  // kRelu or kGelu
  NormKind norm_kind = NormKind::kLayer;
  double eps = 1e-5;  // of both norms
  DropoutOptions mixed_dropout, hidden_dropout, branch_dropout;  // d1, d2, d3
};

/// Dense, as they are trained. beta is null for RMS norms.
struct LayerRestWeights {
  const float* out_weight = nullptr;  // Wo [D, V]
  const float* out_bias = nullptr;    // bo [D]; null: zeros
  const float* gamma = nullptr;       // [D], of n
  const float* beta = nullptr;
  const float* weight1 = nullptr;  // [F, D]
  const float* bias1 = nullptr;    // [F]
  const float* weight2 = nullptr;  // [D, F]
  const float* bias2 = nullptr;    // [D]; null: zeros
  // The norm of y; null: pre-norm.
  const float* end_gamma = nullptr;  // [D]
  const float* end_beta = nullptr;
};

/// Rows in and out, dense; what the gradient reads again is kept.
struct LayerRestTensors {
  const float* x = nullptr;      // [rows, D]
  const float* mixed = nullptr;  // [rows, V]
  float* y = nullptr;            // [rows, D]
  float* s = nullptr;            // [rows, D]
  float* n = nullptr;            // [rows, D], scratch: holds no result;
                                 // for the gradient [block, D]
  float* kept = nullptr;         // [rows, F]: n W1^T; with relu: h
  float* mean = nullptr;         // [rows], of a layer norm
  float* inverse = nullptr;      // [rows]
  float* end_s = nullptr;        // [rows, D], post-norm, as are the next two
  float* end_mean = nullptr;
  float* end_inverse = nullptr;
};

/// Floats of workspace, forward and backward: a copy of the three weights and
/// 250 KiB per worker; forward also the hidden rows of a task (42, or a 256th
/// of all rows) per worker, backward also sums of a few widths for every task.
int64_t LayerRestWorkspaceFloats(const LayerRestShape& shape,
                                 const Executor& executor);
int64_t LayerRestGradientWorkspaceFloats(const LayerRestShape& shape,
                                         const Executor& executor);

/// Results overlap neither inputs nor each other. The bits are the same for any
/// executor. workspace must be at a multiple of 64 bytes. Allocates nothing;
/// thread-safe. Throws ShapeError for sizes below 0 and a width of 0,
/// ArgumentError for null data, and whatever MakeDropoutKey throws.
void LayerRestForward(const LayerRestOptions& options,
                      const LayerRestShape& shape,
                      const LayerRestWeights& weights,
                      const LayerRestTensors& tensors, float* workspace,
                      Executor& executor);

/// Gradients. `t` is as the forward pass left it: of its inputs only mixed is
/// read, and n is recomputed from s, which takes less time than its memory is
/// worth. null bias gradients: not wanted.
struct LayerRestGradients {
  const float* grad_y = nullptr;  // [rows, D]
  float* grad_x = nullptr;        // [rows, D]
  float* grad_mixed = nullptr;    // [rows, V]
  float* grad_out_weight = nullptr;
  float* grad_out_bias = nullptr;
  float* grad_gamma = nullptr;
  float* grad_beta = nullptr;
  float* grad_weight1 = nullptr;
  float* grad_bias1 = nullptr;
  float* grad_weight2 = nullptr;
  float* grad_bias2 = nullptr;
  float* grad_end_gamma = nullptr;
  float* grad_end_beta = nullptr;
  // Scratch for intermediate results, of LayerRestBlockRows rows; the contents
  // do not matter afterwards.
  float* hidden = nullptr;       // [block, F], gelu only: h again
  float* grad_hidden = nullptr;  // [block, F]
  float* grad_branch = nullptr;  // [block, D], with d3 or post-norm
  float* grad_base = nullptr;    // [block, D], with d3 and post-norm
  float* grad_out = nullptr;     // [block, D], with d1
};

/// Rows that the gradient takes at a time, so that the scratch never grows
/// further, however long the sequence is.
constexpr int64_t kLayerRestBlockRows = 2048;
constexpr int64_t LayerRestBlockRows(int64_t rows) {
  return rows < kLayerRestBlockRows ? rows : kLayerRestBlockRows;
}

void LayerRestBackward(const LayerRestOptions& options,
                       const LayerRestShape& shape,
                       const LayerRestWeights& weights,
                       const LayerRestTensors& tensors,
                       const LayerRestGradients& gradients, float* workspace,
                       Executor& executor);

}  // namespace tarn
