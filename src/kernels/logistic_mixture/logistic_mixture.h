// Bytes distributed as a mixture of K discretized logistics (Salimans et al.
// 2017, "PixelCNN++", section 2.1; the linear transformer paper's image models
// with K = 10): loss, gradient and draws. A row of parameters holds K logits
// l, K means mu and K log-scales t. With y = 2 byte / 255 - 1, h = 1 / 255,
// s = exp(max(t, -7)) and sig(u) = 1 / (1 + exp(-u)):
//   p_k = sig((y - mu + h) / s) - sig((y - mu - h) / s)
//   byte 0: the first term only;  byte 255: 1 - the second
//   other bytes, where p_k <= 1e-5: the density at y over 127.5
//   loss = -ln sum_k softmax(l)_k p_k      (nats; over ln 2: bits a dimension)
//   dloss/dl = softmax(l)_k - r_k,  r_k = softmax(l)_k p_k / exp(-loss)
//   dloss/dmu = -r_k dln p_k/dmu, dloss/dt = -r_k dln p_k/dt (0 for t < -7)
// The difference of two sigmoids is never taken:
//   ln p_k = ln sig(a) + ln sig(-b) + ln(1 - exp(b - a)),  b - a = -2 h / s.
#pragma once

#include <cstdint>

#include "core/executor.h"
#include "core/rng.h"

namespace tarn {

/// What one call reads and writes; rows are dense, float32.
struct LogisticMixtureArgs {
  int64_t rows = 0;
  int64_t n_mixtures = 0;            // K
  const float* params = nullptr;     // [rows, 3 K]: logits, means, log-scales
  const uint8_t* targets = nullptr;  // [rows]
  const float* weights = nullptr;    // [rows], scale gradients; null: ones
  float* losses = nullptr;           // [rows], nats; null: not wanted
  float* gradients = nullptr;  // [rows, 3 K]; null: not wanted. Not params
};

/// Throws ShapeError for negative rows or K outside [1, 2^20], ArgumentError
/// for null data, before any work. The error of each loss and each product s
/// dloss/dmu is some 1e-6 plus the effect of rounding y - mu, 1e-7 / s. A logit
/// of -inf has weight 0 and a log-scale of -inf counts as -7; with any other
/// infinity or a NaN among a row's parameters its loss and gradients are NaN,
/// and other rows are not affected. Gradients of a row of weight 0 are 0
/// whatever it holds. Means count as at most 1e30 from y. One read of the
/// parameters (two with gradients); allocates nothing; same bits for any
/// executor.
void LogisticMixtureLoss(const LogisticMixtureArgs& args, Executor& executor);

/// Draws a byte from one row of parameters, [3 K]: a component by the weights
/// softmax(l / temperature), then x = mu + temperature s (ln u - ln(1 - u)),
/// then the byte nearest to x clamped to [-1, 1]. Temperature 1 draws from the
/// distribution above, 0 takes the mean of the heaviest component (the first of
/// equals). Takes two steps of `rng` for any arguments, so a row's draw is a
/// function of its place in the stream. Throws ShapeError for k < 1,
/// ArgumentError for null or a temperature outside [0, 100], NumericError for
/// NaN or an infinity that the loss would not take. O(K); computes in double.
uint8_t LogisticMixtureSample(const float* params, int64_t k, Rng& rng,
                              double temperature = 1.0);

}  // namespace tarn
