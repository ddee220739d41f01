// Several mixes of a row and its change, as RWKV-7 mixes each token with the
// one before it (Peng et al. 2025, arXiv 2503.14456): with w_j a row that all
// rows share,
//   out_j = x + d w_j,   j in [0, count)
// Gradient: dx = sum_j dout_j, dd = sum_j dout_j w_j, and dw_j = dout_j d,
// summed over rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "core/executor.h"

namespace tarn {

constexpr int kMostMixes = 8;

/// x and d dense [rows, width], float32, bfloat16 or float16, one dtype for
/// both; arithmetic in float32, one rounding.
struct RowMixInputs {
  DType dtype = DType::kF32, weight_dtype = DType::kF32;
  int count = 0;  // [1, kMostMixes]
  int64_t rows = 0, width = 0;
  const void *x = nullptr, *delta = nullptr;  // x: forward alone
  const void* weights[kMostMixes] = {};       // w_j, [width] of weight_dtype
};

struct RowMixGradients {
  const void* grad_outs[kMostMixes] = {};         // dout_j, [rows, width]
  void *grad_x = nullptr, *grad_delta = nullptr;  // [rows, width]
  float* grad_weights = nullptr;                  // [count, width]
};

/// Bytes of 64-byte aligned scratch for either pass.
size_t RowMixesForwardBytes(const RowMixInputs& in);
size_t RowMixesGradientBytes(const RowMixInputs& in);

/// outs: count results [rows, width], none of them an input. Throws ShapeError
/// for sizes, ArgumentError for absent data. Allocates nothing; thread-safe;
/// the same bits for any executor.
void RowMixesForward(const RowMixInputs& in, void* const* outs,
                     Executor& executor, void* workspace);

/// Writes all gradients.
void RowMixesBackward(const RowMixInputs& in, const RowMixGradients& grad,
                      Executor& executor, void* workspace);

}  // namespace tarn
