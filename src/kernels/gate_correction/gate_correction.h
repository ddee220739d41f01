// What RWKV-7 adds to the output of its recurrence before the output gate
// (Peng et al. 2025, arXiv 2503.14456): for each token and head, rows of W
// entries,
//   s = sum_i r_i k_i w_i,   out = (o + s v) g
// with w a row for each head. Gradient, u = dout g:
//   do = u, dg = dout (o + s v), dv = s u, ds = sum_i u_i v_i
//   dr = ds k w, dk = ds r w, dw = ds r k, summed over tokens
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "core/executor.h"

namespace tarn {

/// Dense [tokens, heads, width], float32, bfloat16 or float16, one dtype for
/// all; arithmetic in float32, one rounding.
struct GateCorrectionInputs {
  DType dtype = DType::kF32;
  int64_t tokens = 0, heads = 0, width = 0;
  const void *o = nullptr, *r = nullptr, *k = nullptr, *v = nullptr,
             *g = nullptr;
  const float* weight = nullptr;  // w, [heads, width]
};

struct GateCorrectionGradients {
  const void* grad_out = nullptr;
  void *o = nullptr, *r = nullptr, *k = nullptr, *v = nullptr, *g = nullptr;
  float* weight = nullptr;  // [heads, width]
};

/// out may be o. Throws ShapeError for negative sizes, ArgumentError for absent
/// data. Allocates nothing; thread-safe; the same bits for any executor.
void GateCorrectionForward(const GateCorrectionInputs& in, void* out,
                           Executor& executor);

/// Bytes of 64-byte aligned scratch for the gradient.
size_t GateCorrectionGradientBytes(const GateCorrectionInputs& in);

/// Writes all gradients.
void GateCorrectionBackward(const GateCorrectionInputs& in,
                            const GateCorrectionGradients& grad,
                            Executor& executor, void* workspace);

}  // namespace tarn
