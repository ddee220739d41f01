// The mLSTM cell of xLSTM (Beck et al. 2024, arXiv 2405.04517, eq. (19)-(27))
// around the recurrence of decay_attention.h: exponential gates that a running
// maximum m keeps finite, and the normaliser. For one head, with p_i and p_f
// the numbers that its gates are made of, cap(x) = c tanh(x / c) or x for
// c = 0, and sigma(x) = 1 / (1 + exp(-x)):
//
//   i, f = cap(p_i + b_i), cap(p_f + b_f)
//   m_t = max(log sigma(f_t) + m_{t-1}, i_t)
//   g_t = log sigma(f_t) + m_{t-1} - m_t <= 0,  w_t = exp(i_t - m_t) <= 1
//   C_t = exp(g_t) C_{t-1} + w_t k_t v_t^T,  n_t = exp(g_t) n_{t-1} + w_t k_t
//   h_t = scale C_t^T q_t / (max(|scale n_t . q_t|, exp(-m_t)) + eps)
//
// n is one more column of C, that of a value which is always 1: the recurrence
// takes values w (v, 1). That is exact: m only moves powers between the state
// and exp(-m), and but for eps h does not depend on it. A token that is not
// kept has log sigma(f) = 0 and i = -inf, whatever it holds: the state and m
// stay as they are.
// Gradients of the gates, in reverse, with dg, dw and dm those of the results:
//   M_t = dm_t + what token t + 1 hands on - dg_t - dw_t w_t
//   di = dw w, and M more where i_t is the maximum
//   dl = dg, and M more where it is not, for l = log sigma(f); token t hands
//        dl_t on to m_{t-1}
//   dp_i = di cap'(p_i)
//   dp_f = dl sigma(-f) cap'(p_f)
//   cap'(x) = 1 - (cap(x) / c)^2
// and of the quotient h_c = y_c / d, with y = (scale C^T q, scale n . q):
//   dy_c = dh_c / d,  dd = -sum_c dh_c h_c / d,
//   dy_n = dd sign(y_n) where |y_n| >= exp(-m), else dm = -dd exp(-m).
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/executor.h"
#include "core/tensor_view.h"

namespace tarn {

/// Added to the denominator.
inline constexpr double kMlstmEps = 1e-6;

/// What makes the gates of one call. Inputs are float32, bfloat16 or float16,
/// arithmetic float32. With cu_seqlens, B = 1 and N sequences are packed along
/// T.
struct MlstmGatesInputs {
  TensorView input_gates, forget_gates;    // p_i, p_f [B, T, 1, H], one dtype
  const float* input_bias = nullptr;       // [H]; null means zeros
  const float* forget_bias = nullptr;      // the same
  float softcap = 0.0f;                    // c >= 0; 0: none
  const bool* kept = nullptr;              // [B, T]; null: all
  const int64_t* cu_seqlens = nullptr;     // [sequences + 1], host memory
  int64_t sequences = 0;                   // with cu_seqlens
  const float* initial_maximum = nullptr;  // m [B or sequences, H]; null: zeros

  int64_t SequenceCount() const {
    return cu_seqlens != nullptr ? sequences : input_gates.size[0];
  }
};

/// Float32 views [B, T, 1, H], written; they may be the inputs' memory where
/// those are float32. final_maximum: m after each sequence, or null; it may be
/// initial_maximum.
struct MlstmGatesOutputs {
  TensorView gates, factors, maxima;  // g, w, m
  float* final_maximum = nullptr;     // [B or sequences, H]
};

/// O(T H), a token after the other: any split of a sequence has the same bits.
/// Throws ShapeError, DTypeError or ArgumentError naming the argument, before
/// any work. Allocates nothing; thread-safe; the same bits for any executor.
/// T, B = 0 are valid.
void MlstmGatesForward(const MlstmGatesInputs& in,
                       const MlstmGatesOutputs& outputs, Executor& executor);

/// Gradients of a scalar loss by what the forward pass returned. Null views
/// mean zeros.
struct MlstmGatesGradients {
  TensorView factors, maxima;                        // of the forward call
  TensorView grad_gates, grad_factors, grad_maxima;  // [B, T, 1, H] float32
  const float* grad_final_maximum = nullptr;         // as final_maximum
  TensorView grad_input, grad_forget;                // written, as input_gates
  float* grad_initial_maximum = nullptr;             // written where not null
  float* grad_input_bias = nullptr;  // [H]; written where not null
  float* grad_forget_bias = nullptr;
};

/// Bytes of 64-byte aligned scratch for the gradient.
size_t MlstmGradientBytes(const MlstmGatesInputs& in);

/// Throws like the forward pass.
void MlstmGatesBackward(const MlstmGatesInputs& in,
                        const MlstmGatesGradients& g, Executor& executor,
                        void* workspace);

/// w (v, 1) [width + 1]: what the recurrence takes for a value [width].
void MlstmValueRow(float factor, const float* value, int64_t width, float* to);

/// h [width] of y [width + 1], what the recurrence read, and m. h may be y.
/// Arguments are not checked.
void MlstmReadRow(const float* read, float maximum, int64_t width, float eps,
                  float* h);

/// Rows of reads: y dense [rows, width + 1], m [rows].
struct MlstmReadCall {
  int64_t rows = 0, width = 0;
  const float* read = nullptr;
  const float* maxima = nullptr;
  float eps = static_cast<float>(kMlstmEps);
};

/// h: dense [rows, width]. Throws ShapeError for negative sizes, ArgumentError
/// for absent data. Allocates nothing; thread-safe; the same bits for any
/// executor.
void MlstmReadForward(const MlstmReadCall& call, float* h, Executor& executor);

/// grad_h: dense [rows, width]; grad_read, dense [rows, width + 1], and
/// grad_maxima [rows] are written. Throws like the forward pass.
void MlstmReadBackward(const MlstmReadCall& call, const float* grad_h,
                       float* grad_read, float* grad_maxima,
                       Executor& executor);

}  // namespace tarn
