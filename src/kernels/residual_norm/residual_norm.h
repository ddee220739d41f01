// What is between two sublayers of a transformer, in one pass: bias, dropout,
// residual and normalisation; and their gradient in one pass.
//   s = residual + (x + bias) * d          d: the factors of dropout.h
// Layer norm (Ba et al. 2016, eq. (4), as torch.nn.LayerNorm), with the biased
// variance:
//   n = (s - mean) * inverse,  y = n * gamma + beta,
//   inverse = 1 / sqrt(var + eps)
// RMS norm (Zhang and Sennrich 2019, eq. (4), as torch.nn.RMSNorm):
//   n = s * inverse,  y = n * gamma,  inverse = 1 / sqrt(mean(s^2) + eps)
// Gradient, for one row of width D, with g = dy * gamma:
//   ds = inverse * (g - sum(g) / D - n * sum(g n) / D) + the gradient of s
//        itself; RMS norm: without sum(g) / D, as no mean is subtracted
//   dresidual = ds;  dx = ds * d;  dbias = sum over rows of dx
//   dgamma = sum over rows of dy * n;  dbeta = sum over rows of dy
// All matrices [rows, width], dense, float32. Without gamma there is no norm:
// s alone. Results have the same bits for any executor.
#pragma once

#include <cstdint>

#include "core/executor.h"
#include "core/norm_kind.h"
#include "kernels/dropout/dropout.h"

namespace tarn {

struct ResidualNormOptions {
  double eps = 1e-5;
  DropoutOptions dropout;
  NormKind kind = NormKind::kLayer;
};

struct ResidualNormTensors {
  const float* residual = nullptr;  // null: zeros
  const float* x = nullptr;
  const float* bias = nullptr;   // [width]; null: zeros
  const float* gamma = nullptr;  // [width]; null: no norm
  const float* beta = nullptr;   // [width], with gamma of a layer norm
  float* s = nullptr;            // may be x or residual; null: not wanted
  float* y = nullptr;            // wanted with gamma; may be x or residual
  float* mean = nullptr;         // [rows], wanted with a layer norm
  float* inverse = nullptr;      // [rows], wanted with gamma
};

/// Throws ShapeError for negative sizes or a norm over no elements,
/// ArgumentError for null data that is wanted and for a beta with an RMS norm,
/// and whatever MakeDropoutKey throws. Allocates nothing; thread-safe.
void ResidualNormForward(const ResidualNormOptions& options, int64_t rows,
                         int64_t width, const ResidualNormTensors& t,
                         Executor& executor);

/// Only rows [begin, end), on the calling thread, with the same bits; addresses
/// are those of row 0. Arguments are not checked.
void ResidualNormForwardRows(const ResidualNormOptions& options, int64_t begin,
                             int64_t end, int64_t width,
                             const ResidualNormTensors& t);

struct ResidualNormGradients {
  const float* grad_y = nullptr;   // null: zeros
  const float* grad_s = nullptr;   // null: zeros
  const float* s = nullptr;        // with gamma, as is inverse
  const float* mean = nullptr;     // [rows], with a layer norm
  const float* inverse = nullptr;  // [rows]
  const float* gamma = nullptr;    // [width]; null: there was no norm
  const float* beta = nullptr;     // [width], with y_again of a layer norm
  // Results; null: not wanted. The first two may be grad_y or grad_s.
  float* grad_residual = nullptr;
  float* grad_x = nullptr;
  float* grad_bias = nullptr;   // [width]
  float* grad_gamma = nullptr;  // [width]
  float* grad_beta = nullptr;   // [width]; not for RMS norms
  float* y_again = nullptr;     // bits of y, if grad_y is given; no aliases
};

/// Floats of workspace for the sums over rows.
int64_t ResidualNormWorkspaceFloats(int64_t rows, int64_t width);

/// Throws like the forward pass.
void ResidualNormBackward(const ResidualNormOptions& options, int64_t rows,
                          int64_t width, const ResidualNormGradients& g,
                          float* workspace, Executor& executor);

/// Only rows [begin, end), like ResidualNormForwardRows; sums: [3, width], the
/// rows' parts of grad_bias, grad_gamma and grad_beta.
void ResidualNormBackwardRows(const ResidualNormOptions& options, int64_t begin,
                              int64_t end, int64_t width,
                              const ResidualNormGradients& g, float* sums);

}  // namespace tarn
