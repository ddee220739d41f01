// Elementwise recurrence: every channel is a state of one number with its own
// decay, the layer of HGRN (Qin et al. 2023, arXiv 2311.04823, eq. 3, with
// x_t = (1 - lambda_t) c_t and g_t = log lambda_t):
//
//   h_t[c] = exp(g_t[c]) h_{t-1}[c] + x_t[c]
//
// Channels never meet, so a call may be cut along D as well as along time.
#pragma once

#include <cstdint>

#include "core/executor.h"
#include "core/tensor_view.h"

namespace tarn {

/// Tensors of one call. Inputs are float32, bfloat16 or float16, arithmetic and
/// states float32. Gates are natural logarithms of decay factors, each of any
/// value: -inf is an exact reset, and above 0 the state grows. With cu_seqlens,
/// B = 1 and N sequences are packed along T.
struct ElementwiseRecurrenceInputs {
  TensorView inputs;                     // [B, T, 1, D]
  TensorView gates;                      // the same; dtype of inputs or float32
  const int64_t* lengths = nullptr;      // [B]: tokens in use, the rest pads
  const int64_t* cu_seqlens = nullptr;   // [sequences + 1], host memory
  int64_t sequences = 0;                 // with cu_seqlens
  const float* initial_state = nullptr;  // [B or sequences, D]; null: zeros

  int64_t SequenceCount() const {
    return cu_seqlens != nullptr ? sequences : inputs.size[0];
  }
};

/// Results; null pointers are not written. `checkpoints` holds the state before
/// every 32nd token, from which the gradient makes those between them again.
struct ElementwiseRecurrenceOutputs {
  TensorView out;                // [B, T, 1, D]: h, dtype of the inputs
  float* final_state = nullptr;  // [B or sequences, D]
  float* checkpoints = nullptr;  // [ElementwiseCheckpoints(in), D]
};

/// Gradients of a scalar loss. Null pointers mean that nothing flows in or that
/// nothing is wanted.
struct ElementwiseRecurrenceGradients {
  const float* checkpoints = nullptr;  // of the forward call
  TensorView grad_out;                 // [B, T, 1, D]
  const float* grad_final_state = nullptr;
  TensorView grad_inputs;  // written, as inputs
  TensorView grad_gates;   // written, as gates
  float* grad_initial_state = nullptr;
};

/// States in `checkpoints`: one for each whole 32 tokens of every row, at most.
int64_t ElementwiseCheckpoints(const ElementwiseRecurrenceInputs& in);

/// Throws ShapeError, DTypeError or ArgumentError naming the argument; reads no
/// tensor data except lengths and cu_seqlens.
void CheckElementwiseRecurrence(const ElementwiseRecurrenceInputs& in,
                                const TensorView& out);

/// O(T D) time; rows of padding are zero in `out`. The final state may be the
/// initial state's memory: a step is a call with T = 1 and the state in both
/// places, and any split of a sequence gives the same bits. Checks first, then
/// runs on `executor`. Allocates nothing. Same bits for any executor width.
/// T, B = 0 are valid.
void ElementwiseRecurrenceForward(const ElementwiseRecurrenceInputs& in,
                                  const ElementwiseRecurrenceOutputs& outputs,
                                  Executor& executor);

/// One pass in reverse, O(T D). Throws ArgumentError without the checkpoints of
/// a call that has any.
void ElementwiseRecurrenceBackward(
    const ElementwiseRecurrenceInputs& in,
    const ElementwiseRecurrenceGradients& gradients, Executor& executor);

}  // namespace tarn
