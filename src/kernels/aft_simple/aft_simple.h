// aft-simple (Zhai et al. 2021, arXiv 2105.14103, eq. (2) with w = 0): a mean
// of the values, weighted channel by channel by the exponentials of the keys,
// with a gate.
//   o_i = sigma(q_i) * sum_{j in A(i)} exp(k_j) v_j / sum_{j in A(i)} exp(k_j)
// Computed by a recurrence with a running maximum: after key j
//   m_j = max(m_{j-1}, k_j)
//   a_j = a_{j-1} exp(m_{j-1} - m_j) + exp(k_j - m_j) v_j,  b_j with v = 1,
//   o_i = sigma(q_i) a / b,  0 where b = 0,
// so no exponent is ever positive and keys of any size are safe. One of the two
// factors is 1: a key costs one exponential, at any position.
//
// The gradient runs backwards over the sequence with two sums over the queries
// that follow, kept relative to the maximum at the query (again no exponent is
// positive). With r_i = dL/do_i sigma(q_i) / b_i and y_i = a_i / b_i
//   w = sum_i exp(-m_i) r_i,  c = sum_i exp(-m_i) r_i y_i
//   dv_j = exp(k_j) w,  dk_j = exp(k_j) (v_j w - c)
//   dq_i = dL/do_i y_i sigma(q_i) sigma(-q_i)
//
// Every channel is independent: its bits do not depend on the neighbouring
// channels, on the executor or on where a sequence is cut. A prefill or a step
// is a call over fewer rows, and so has the arithmetic of training.
#pragma once

#include <cstdint>

#include "core/executor.h"
#include "core/tensor_view.h"

namespace tarn {

struct AftSimpleInputs {
  TensorView queries;          // [B, T, H, E] float32
  TensorView keys, values;     // [B, S, H, E]
  const bool* kept = nullptr;  // [B, S]; null: all keys. A key of -inf has no
                               // weight either
  bool causal = false;         // query i reads keys j <= i + causal_offset
  int64_t causal_offset = 0;
};

/// What a sequence carries from call to call: [B, H, E] each. Before the first
/// key m is -inf, and a and b are 0.
struct AftSimpleState {
  float* m = nullptr;
  float* a = nullptr;
  float* b = nullptr;
};

/// Writes out [B, T, H, E] and advances the state past all kept keys, including
/// those that no query reads. Throws ShapeError, DTypeError and ArgumentError
/// before any work. Costs three reads and a write per row, an exponential per
/// key, and an exponential and two divisions per query; allocates nothing;
/// thread-safe.
void AftSimpleForward(const AftSimpleInputs& in, const AftSimpleState& state,
                      const TensorView& out, Executor& executor);

struct AftSimpleGradients {
  // Gradients of the results, null: zero. The final state's are [B, H, E].
  TensorView out;
  const float* m = nullptr;
  const float* a = nullptr;
  const float* b = nullptr;
  // Written; those of the initial state are all three given, or none (null).
  TensorView queries, keys, values;
  AftSimpleState initial;
};

/// Floats of workspace that the gradient needs with an executor of `width`
/// workers: three rows of 64 channels for each query and worker.
int64_t AftSimpleBackwardFloats(const AftSimpleInputs& in, int width);

/// initial: the state before the forward pass, all three parts or none (null),
/// which means the state before the first key. Throws like the forward pass,
/// and ShapeError for more than 2^31 - 1 keys. The gradient of the maximum
/// itself, less what a and b lose by it, goes to the first key that holds the
/// maximum.
void AftSimpleBackward(const AftSimpleInputs& in, const AftSimpleState& initial,
                       const AftSimpleGradients& g, Executor& executor,
                       float* workspace);

}  // namespace tarn
