// The gated activation of SwiGLU with dropout in one pass over two matrices,
// and its gradient in one pass (Shazeer 2020, eq. (6): FFN_SwiGLU without the
// products). silu(g) = g sigma(g);  y = silu(gate) * up * d, d the factors of
// dropout.h.
//   dgate = dy * d * up * silu'(gate),  silu'(g) = sigma(g) (1 + g sigma(-g))
//   dup = dy * d * silu(gate)
// No mask is stored, and y need not be: the gradient recomputes both. Matrices
// [rows, width], dense, float32. Results have the same bits for any executor;
// MatMulFinish::kSwiglu gives those of the pass without dropout.
#pragma once

#include <cstdint>

#include "core/executor.h"
#include "kernels/dropout/dropout.h"

namespace tarn {

/// y may be gate or up. Throws ShapeError for negative sizes, ArgumentError for
/// null data of a size that is not 0, and whatever MakeDropoutKey throws. Two
/// reads and one write; allocates nothing; thread-safe.
void SwigluForward(const DropoutOptions& dropout, int64_t rows, int64_t width,
                   const float* gate, const float* up, float* y,
                   Executor& executor);

struct SwigluGradients {
  const float* grad_y = nullptr;
  const float* gate = nullptr;
  const float* up = nullptr;
  // Results; null: not wanted. Each may be one of the inputs.
  float* grad_gate = nullptr;
  float* grad_up = nullptr;
  float* y = nullptr;  // as the forward pass gave it, for the next product
};

/// Throws like the forward pass. Three reads and up to three writes.
void SwigluBackward(const DropoutOptions& dropout, int64_t rows, int64_t width,
                    const SwigluGradients& g, Executor& executor);

}  // namespace tarn
