// Selective scan: every channel has N states, each with its own decay, whose
// rate a token chooses by its step. The layer of Mamba (Gu and Dao 2023, arXiv
// 2312.00752, eq. 2a and 4, with the step of section 3.2):
//
//   h_t[d, n] = exp(delta_t[d] A[d, n]) h_{t-1}[d, n] + delta_t[d] B_t[n]
//   x_t[d] y_t[d]    = sum_n C_t[n] h_t[d, n] + D[d] x_t[d]
//
// Channels meet in the gradients of B and C alone.
#pragma once

#include <cstdint>

#include "core/executor.h"
#include "core/tensor_view.h"

namespace tarn {

/// Tensors of one call. Rows are float32, bfloat16 or float16, arithmetic and
/// states float32. Factors are those of exp(delta A) of any size: -inf is an
/// exact reset. With cu_seqlens, B = 1 and N sequences are packed along T.
struct SelectiveScanInputs {
  TensorView inputs;                     // x [B, T, 1, D]
  TensorView steps;                      // delta, the same; or float32
  const float* rates = nullptr;          // A [D, states]
  TensorView keys;                       // B [B, T, 1, states], dtype of x
  TensorView queries;                    // C, the same
  const float* skip = nullptr;           // D [D]; null: zeros
  const int64_t* lengths = nullptr;      // [B]: tokens in use, the rest pads
  const int64_t* cu_seqlens = nullptr;   // [sequences + 1], host memory
  int64_t sequences = 0;                 // with cu_seqlens
  const float* initial_state = nullptr;  // [B or sequences, D, states]; or null

  int64_t channels() const { return inputs.size[3]; }
  int64_t states() const { return keys.size[3]; }
  int64_t SequenceCount() const {
    return cu_seqlens != nullptr ? sequences : inputs.size[0];
  }
};

/// The most states of a channel.
constexpr int64_t kMostScanStates = 128;

/// Results; null pointers are not written. `checkpoints` holds the states
/// before every 16th token, from which the gradient makes those between them
/// again.
struct SelectiveScanOutputs {
  TensorView out;                // y [B, T, 1, D], dtype of x
  float* final_state = nullptr;  // [B or sequences, D, states]
  float* checkpoints = nullptr;  // [SelectiveScanCheckpoints(in), states, D]
};

/// Gradients of a scalar loss. A null pointer means that nothing flows in or
/// that nothing is wanted; the views are all written.
struct SelectiveScanGradients {
  const float* checkpoints = nullptr;  // of the forward call
  TensorView grad_out;                 // [B, T, 1, D]
  const float* grad_final_state = nullptr;
  TensorView grad_inputs, grad_steps, grad_keys, grad_queries;
  float* grad_rates = nullptr;  // [D, states]
  float* grad_skip = nullptr;   // [D]
  float* grad_initial_state = nullptr;
  float* scratch = nullptr;  // SelectiveScanScratch(in, executor.width())
};

/// States in `checkpoints`: one for each whole 16 tokens of every row, at most.
int64_t SelectiveScanCheckpoints(const SelectiveScanInputs& in);
/// Floats of scratch that the gradient needs: what each worker makes again, and
/// for every 64 channels the gradients of keys and queries.
int64_t SelectiveScanScratch(const SelectiveScanInputs& in, int workers);

/// Throws ShapeError, DTypeError or ArgumentError naming the argument; reads no
/// tensor data except lengths and cu_seqlens.
void CheckSelectiveScan(const SelectiveScanInputs& in, const TensorView& out);

/// O(T D states) time; rows of padding are zero in `out`. The final state may
/// be the initial state's memory: a step is a call with T = 1 and the state in
/// both places, and any split of a sequence gives the same bits. Checks first,
/// then runs on `executor`. Allocates nothing. Same bits for any executor
/// width. T, B = 0 are valid.
void SelectiveScanForward(const SelectiveScanInputs& in,
                          const SelectiveScanOutputs& outputs,
                          Executor& executor);

/// One pass in reverse, in the same time and with the same promises. Throws
/// ArgumentError without scratch or the checkpoints of a call that has any.
void SelectiveScanBackward(const SelectiveScanInputs& in,
                           const SelectiveScanGradients& gradients,
                           Executor& executor);

}  // namespace tarn
