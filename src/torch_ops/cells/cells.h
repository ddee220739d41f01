// The cells of RG-LRU and mLSTM on torch tensors: gates and what follows from
// them, around the recurrences of torch_ops/elementwise and torch_ops/gated.
// kernels/rg_lru/rg_lru.h and kernels/mlstm/mlstm.h have the equations and
// their sources.
//
// float32, bfloat16 and float16 by the kernels on the CPU; float64, other
// devices, torch.func and gradients of gradients by the composed form.
// Arithmetic and states are float32 (float64 for float64). Errors arrive as
// torch's: c10::TypeError for dtypes, c10::ValueError for the rest, before any
// work. Thread-safe; the same bits for any number of threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <limits>
#include <tuple>

#include "torch_ops/common/call.h"

namespace tarn::ops {

/// One call of RG-LRU's gates over rows `...` of C channels.
struct RgLruGatesCall {
  // [..., C] of one dtype: what enters, and the numbers that the gates are
  // made of.
  at::Tensor inputs, input_gates, recurrence_gates;
  at::Tensor Lambda;                           // [C]
  OptionalTensor input_bias, recurrence_bias;  // [C]
  // [...] bool: rows that forget what was before them, as the first of a
  // sequence does; rows that count. Absent: none, all.
  OptionalTensor begins, kept;
  // The most that the root's slope by 1 - a^2 may be, above 0.
  double most_slope = std::numeric_limits<double>::infinity();
};

/// What the elementwise recurrence takes: inputs and gates [..., C], float32
/// (float64).
using RgLruGatesResults = std::tuple<at::Tensor, at::Tensor>;
RgLruGatesResults RgLruGates(const RgLruGatesCall& call);

/// Throws tarn::Error naming the argument; reads no data. Sizes may be
/// symbolic.
void CheckRgLruGates(const RgLruGatesCall& call);

/// The gates with their recurrence; rows are [B, T].
struct RgLruCall {
  RgLruGatesCall gates;          // begins absent: see RgLru
  OptionalTensor lengths;        // [B] int32 or int64: tokens in use
  OptionalTensor cu_seqlens;     // [N + 1]: sequences packed along T; B = 1
  OptionalTensor initial_state;  // [B or N, C] float32 (float64)
  bool return_state = false;
};

/// out [B, T, C] in the dtype of the inputs and the state [B or N, C] after
/// each sequence, [0] unless asked for. begins absent: the first kept token of
/// each sequence, none where there is an initial state.
using RgLruResults = std::tuple<at::Tensor, at::Tensor>;
RgLruResults RgLru(const RgLruCall& call);

/// One call of the mLSTM cell.
struct MlstmCall {
  at::Tensor queries, keys;                // [B, T, H, K]
  at::Tensor values;                       // [B, T, H, V]; one dtype for all
  at::Tensor input_gates, forget_gates;    // [B, T, H]
  OptionalTensor input_bias, forget_bias;  // [H]
  double softcap = 0.0;                    // of the gates; 0: none
  OptionalTensor kept;                     // [B, T] bool: tokens that count
  OptionalTensor lengths, cu_seqlens;      // as in RgLruCall
  // The state before: C with n as its last column [B or N, H, K, V + 1], and
  // m [B or N, H]; absent: zeros.
  OptionalTensor initial_state, initial_maximum;
  double scale = 1.0;  // of the queries
  double eps = 1e-6;   // added to the denominator
  bool return_state = false;
};

/// out [B, T, H, V] in the dtype of values, 0 at pads; the state after each
/// sequence and its m, each [0] unless asked for.
using MlstmResults = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
MlstmResults Mlstm(const MlstmCall& call);

/// The gates of the cell alone. Logarithms of the decay factors, what each
/// token's value is multiplied by, and m, each [B, T, H], and the last m
/// [B or N, H], all float32 (float64). lengths are not read: see `kept`.
using MlstmGatesResults =
    std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
MlstmGatesResults MlstmGates(const MlstmCall& call);

/// Throws tarn::Error naming the argument of the gates; reads no data. Sizes
/// may be symbolic.
void CheckMlstmGates(const MlstmCall& call);

/// read [..., V + 1], what the recurrence read, over its normaliser, with
/// maxima [...]: [..., V] float32 (float64).
at::Tensor MlstmRead(const at::Tensor& read, const at::Tensor& maxima,
                     double eps);

}  // namespace tarn::ops
