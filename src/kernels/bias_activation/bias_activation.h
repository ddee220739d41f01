// Bias, activation and dropout in one pass over a matrix, and their gradient in
// one pass. u = x + bias;  y = act(u) * s, s the factors of dropout.h.
//   dx = dy * s * act'(u);  dbias = sum over rows of dx
// act: identity, relu, or x Phi(x), the exact form of GELU (Hendrycks and
// Gimpel 2016, eq. (1)), with the error bound of kernels/activation. Neither
// mask nor factors are stored: relu reads its slope and its mask from y (0
// where cut or dropped), the others draw the factors again.
// Rows are dense, float32. Results have the same bits for any executor.
#pragma once

#include <cstdint>

#include "core/executor.h"
#include "kernels/dropout/dropout.h"

namespace tarn {

enum class Nonlinearity { kIdentity, kRelu, kGelu };

struct BiasActivationOptions {
  Nonlinearity activation = Nonlinearity::kIdentity;
  DropoutOptions dropout;
};

/// x, y: [rows, width]; bias: [width], null: none. y may be x. Throws
/// ShapeError for negative sizes, ArgumentError for null data of a size that is
/// not 0, and whatever MakeDropoutKey throws. One read and one write; allocates
/// nothing.
void BiasActivationForward(const BiasActivationOptions& options, int64_t rows,
                           int64_t width, const float* x, const float* bias,
                           float* y, Executor& executor);

/// Only rows [begin, end), on the calling thread, with the same bits; x and y
/// point at row `begin`. Arguments are not checked.
void BiasActivationForwardRows(const BiasActivationOptions& options,
                               int64_t begin, int64_t end, int64_t width,
                               const float* x, const float* bias, float* y);

/// What the gradient reads and writes.
struct BiasActivationGradients {
  const float* grad_y = nullptr;  // [rows, width]
  const float* y = nullptr;       // [rows, width], relu only
  const float* x = nullptr;       // [rows, width], gelu only
  const float* bias = nullptr;    // [width], gelu only; null: none
  float* grad_x = nullptr;        // [rows, width]; may be grad_y or y. Null:
                                  // not wanted
  float* grad_bias = nullptr;     // [width]; null: not wanted
  float* y_again = nullptr;       // [rows, width], gelu only: y, a by-product
                                  // of its slope; null: not wanted
};

/// Floats of workspace for the sums over rows.
int64_t BiasActivationWorkspaceFloats(int64_t rows, int64_t width);

/// Throws like the forward pass. `workspace`: as many floats as the function
/// above says, used only when grad_bias is wanted.
void BiasActivationBackward(const BiasActivationOptions& options, int64_t rows,
                            int64_t width, const BiasActivationGradients& g,
                            float* workspace, Executor& executor);

/// Only rows [begin, end), on the calling thread; addresses are those of row 0.
/// sums: [width], the rows' part of grad_bias; null: not wanted. Arguments are
/// not checked.
void BiasActivationBackwardRows(const BiasActivationOptions& options,
                                int64_t begin, int64_t end, int64_t width,
                                const BiasActivationGradients& g, float* sums);

}  // namespace tarn
