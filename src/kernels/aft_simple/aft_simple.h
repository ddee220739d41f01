// aft-simple (Zhai et al. 2021, arXiv 2105.14103, eq. (2) with w = 0): a mean
// of the values, weighted channel by channel by the exponentials of the keys,
// with a gate.
//   o_i = sigma(q_i) * sum_{j in A(i)} exp(k_j) v_j / sum_{j in A(i)} exp(k_j)
// By a recurrence with a running maximum: after key j
//   m_j = max(m_{j-1}, k_j)
//   a_j = a_{j-1} exp(m_{j-1} - m_j) + exp(k_j - m_j) v_j,  b_j with v = 1,
//   o_i = sigma(q_i) a / b,  0 where b = 0,
// so no exponent is ever positive and keys of any size are safe. One of the two
// factors is 1: a key costs one exponential, whatever its place.
//
// The gradient runs backwards over the sequence with two sums over the queries
// that follow, kept relative to the maximum at the query (again no exponent is
// positive). With r_i = dL/do_i sigma(q_i) / b_i and y_i = a_i / b_i
//   w = sum_i exp(-m_i) r_i,  c = sum_i exp(-m_i) r_i y_i
//   dv_j = exp(k_j) w,  dk_j = exp(k_j) (v_j w - c)
//   dq_i = dL/do_i y_i sigma(q_i) sigma(-q_i)
//
// Every channel is by itself: no bit of it depends on the channels beside it,
// on the executor or on where a sequence is cut. A prefill or a step is a call
// over fewer rows, and so the arithmetic of training.
#pragma once

#include <cstdint>

#include "core/executor.h"
#include "core/tensor_view.h"

namespace tarn {

struct AftSimpleInputs {
  TensorView queries;            // [B, T, H, E] float32
  TensorView keys, values;       // [B, S, H, E]
  const bool* kept = nullptr;    // [B, S]; null: all keys. A key of -inf has no
                                 // weight either
  bool causal = false;           // query i reads keys j <= i + causal_offset
  int64_t causal_offset = 0;
};

/// What a sequence carries on: [B, H, E] each. Before the first key m is -inf,
/// a and b are 0.
struct AftSimpleState {
  float* m = nullptr;
  float* a = nullptr;
  float* b = nullptr;
};

/// Writes out [B, T, H, E] and brings the state beyond all kept keys, those that
/// no query reads as well. Throws ShapeError, DTypeError and ArgumentError
/// before any work. Three reads and a write of a row, an exponential a key, an
/// exponential and two divisions a query; allocates nothing; thread-safe.
void AftSimpleForward(const AftSimpleInputs& in, const AftSimpleState& state,
                      const TensorView& out, Executor& executor);

struct AftSimpleGradients {
  // Of the results; null: zero. Those of the final state are [B, H, E].
  TensorView out;
  const float* m = nullptr;
  const float* a = nullptr;
  const float* b = nullptr;
  // To be written; those of the initial state all three, or none: null.
  TensorView queries, keys, values;
  AftSimpleState initial;
};

/// Floats of workspace that the gradient needs with an executor of `width`
/// workers: three rows of 64 channels a query and worker.
int64_t AftSimpleBackwardFloats(const AftSimpleInputs& in, int width);

/// initial: the state before the forward pass, all three or none (null), which
/// is the one before the first key. Throws as the forward pass, and ShapeError
/// for more than 2^31 - 1 keys. The maximum's own gradient, less what a and b
/// lose by it, goes to the first key that holds the maximum.
void AftSimpleBackward(const AftSimpleInputs& in, const AftSimpleState& initial,
                       const AftSimpleGradients& g, Executor& executor,
                       float* workspace);

}  // namespace tarn
