// The gates of the real-gated linear recurrent unit, RG-LRU (De et al. 2024,
// arXiv 2402.19427, eq. (1)-(4)): from a row x, the numbers p_i and p_r that
// its gates are made of, and Lambda of each channel to what the recurrence
// h_t = exp(g_t) h_{t-1} + y_t of elementwise_recurrence.h takes. With
// sigma(x) = 1 / (1 + exp(-x)):
//   i = sigma(p_i + b_i),  r = sigma(p_r + b_r)
//   g = -rate r,           rate = 8 softplus(Lambda)
//   y = sqrt(1 - exp(2 g)) i x
// Lambda has the sign of the published models, the opposite of the paper's. A
// row that begins a sequence forgets what was before it and has no root:
// g = -inf, y = i x. A row that is not kept leaves the state as it is,
// whatever it holds: g = 0, y = 0.
// Gradients, with dg and dy those of the results and s the root:
//   dx = dy s i,  dp_i = dy s x i (1 - i)
//   e  = dg - dy i x exp(2 g) / s,  dp_r = -e rate r (1 - r),  drate = -e r
// The slope of the root is 0 where 1 - exp(2 g) is below 1e-30; it would be
// infinite at 0. With a bound b on the slope of the root by its square, 1 / s
// is at most 2 b, as in the training of RecurrentGemma, b = 1000. Nothing
// cancels: 1 - exp(2 g) is -expm1(2 g). NaN stays in its entry.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "core/dtype.h"
#include "core/executor.h"

namespace tarn {

/// The paper's c.
inline constexpr double kRgLruRate = 8.0;

/// rates[c] = 8 softplus(Lambda[c]), each [n]; they may be the same. In double
/// with one rounding; once for all calls with these weights.
void RgLruRates(const float* Lambda, int64_t n, float* rates);

/// The gradient of Lambda [n] from that of the rates; they may be the same.
void RgLruRatesBackward(const float* Lambda, const float* grad_rates, int64_t n,
                        float* grad_Lambda);

/// What all rows of a call share.
struct RgLruChannels {
  int64_t count = 0;
  const float* rates = nullptr;            // [count]
  const float* input_bias = nullptr;       // [count]; null means zeros
  const float* recurrence_bias = nullptr;  // the same
  float most_slope = std::numeric_limits<float>::infinity();  // b > 0
};

/// One row of floats: all are [count]; inputs and gates may be any of the
/// others. An entry's bits depend on that entry alone. Arguments are not
/// checked; allocates nothing, thread-safe.
void RgLruGatesRow(const RgLruChannels& channels, bool begins, const float* x,
                   const float* input_gates, const float* recurrence_gates,
                   float* inputs, float* gates);

/// Rows of x, p_i and p_r in one dtype, `*_stride` elements from one to the
/// next; arithmetic in float32.
struct RgLruCall {
  RgLruChannels channels;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  const void* x = nullptr;
  const void* input_gates = nullptr;
  const void* recurrence_gates = nullptr;
  int64_t x_stride = 0, input_stride = 0, recurrence_stride = 0;
  const bool* begins = nullptr;  // [rows]; null: none
  const bool* kept = nullptr;    // [rows]; null: all
};

/// inputs (y) and gates (g): dense [rows, count], float32 whatever the dtype,
/// as their sums decide over a whole sequence. Throws ShapeError for negative
/// sizes, ArgumentError for absent data, before any work. Allocates nothing;
/// thread-safe; the same bits for any executor. O(rows count).
void RgLruGatesForward(const RgLruCall& call, float* inputs, float* gates,
                       Executor& executor);

struct RgLruGradients {
  const float* grad_inputs = nullptr;  // [rows, count]; null means zeros
  const float* grad_gates = nullptr;   // the same
  void* grad_x = nullptr;              // dense [rows, count]; written
  void* grad_input_gates = nullptr;
  void* grad_recurrence_gates = nullptr;
  // [count], of what all rows share; written.
  float* grad_rates = nullptr;
  float* grad_input_bias = nullptr;
  float* grad_recurrence_bias = nullptr;
};

/// Bytes of 64-byte aligned scratch for the gradient.
size_t RgLruGradientBytes(const RgLruCall& call);

/// Throws like the forward pass. All gradients are wanted.
void RgLruGatesBackward(const RgLruCall& call, const RgLruGradients& g,
                        Executor& executor, void* workspace);

}  // namespace tarn
