// Cross entropy of rows of logits x [V] with their targets t:
//   z_i = scale x_i, with a cap c: c tanh(scale x_i / c)
//   lse = log(sum_i exp(z_i)),   p_i = exp(z_i - lse)
//   squares = q lse^2
//   loss = lse - (1 - e) z_t - e mean(z) + squares
//   dx_i = scale (1 - (z_i / c)^2) *
//          ((1 + 2 q lse) p_i - (1 - e) [i = t] - e / V) dloss
// e: label smoothing (Szegedy et al. 2016, arXiv 1512.00567); q: the z loss
// (Chowdhery et al. 2022, arXiv 2204.02311). The terms of loss are taken less
// the largest z, so that nothing cancels. A row whose target is `ignored` has
// loss, squares and gradient 0.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/executor.h"

namespace tarn {

struct CrossEntropyOptions {
  double smoothing = 0;
  double scale = 1;
  double square_scale = 0;  // q
  double cap = 0;           // c; 0: none
  int64_t ignored = -100;
};

/// x: row r at logits + r * stride elements, float32, bfloat16 or float16.
struct CrossEntropyInputs {
  const void* logits = nullptr;  // [rows, classes]
  int64_t stride = 0;
  DType dtype = DType::kF32;
  int64_t rows = 0, classes = 0;
  const int64_t* targets = nullptr;  // [rows], dense
};

/// losses, squares: [rows]. moments: [rows, 2], the largest z and lse less it,
/// for the gradient. Throws ShapeError for negative sizes or no class,
/// ArgumentError for absent data or a target that is neither a class nor
/// ignored. Allocates nothing; thread-safe; the same bits for any executor.
void CrossEntropyForward(const CrossEntropyOptions& options,
                         const CrossEntropyInputs& in, float* losses,
                         float* squares, float* moments, Executor& executor);

/// grad_logits: [rows, classes] dense, dtype of the logits. grad_losses [rows].
void CrossEntropyBackward(const CrossEntropyOptions& options,
                          const CrossEntropyInputs& in, const float* moments,
                          const float* grad_losses, void* grad_logits,
                          Executor& executor);

}  // namespace tarn
