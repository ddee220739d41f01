// Tensors of the gated recurrences: what decay_attention, delta_attention and
// dplr_attention take, and what they give back.
#pragma once

#include <cstdint>

#include "core/tensor_view.h"

namespace tarn {

/// What the operators compute, apart from their tensors.
struct RecurrentOptions {
  float scale = 1.0f;  // multiplies the queries
};

/// Tensors of one call: B batch, T tokens, H query/key heads, HV = value heads
/// (a multiple of H), K, V widths. Value head h reads query/key head
/// h / (HV / H). Queries, keys, values and the output have one dtype. Gates are
/// natural logarithms of decay factors, each of any value: -inf is an exact
/// reset, and above 0 the state grows. With cu_seqlens, B = 1 and N sequences
/// are packed along T.
struct RecurrentInputs {
  TensorView queries;  // [B, T, H, K]
  TensorView keys;     // [B, T, H, K]
  TensorView values;   // [B, T, HV, V]
  // At most one of the two; neither means no decay.
  TensorView gates;  // [B, T, HV, 1] or [B, T, HV, K], any dtype
  const float* head_gates = nullptr;  // [HV], one constant per head
  TensorView betas;                   // [B, T, HV, 1], any dtype: delta alone
  const float* bonus = nullptr;  // [HV, K]: the exclusive read, decay alone
  // The low-rank pair, each [B, T, H, K] with H = HV: dplr alone. What is read
  // from the state before its decay, and where that is written.
  TensorView reads, writes;
  const int64_t* lengths = nullptr;      // [B]: tokens in use, the rest pads
  const int64_t* cu_seqlens = nullptr;   // [sequences + 1], host memory
  int64_t sequences = 0;                 // with cu_seqlens
  const float* initial_state = nullptr;  // [B or sequences, HV, K, V] dense
  // Every pointer is of a device, cu_seqlens and lengths as well.
  bool on_device = false;

  int64_t SequenceCount() const {
    return cu_seqlens != nullptr ? sequences : queries.size[0];
  }
  bool HasGates() const { return gates.size[3] != 0; }
  bool VectorGates() const { return HasGates() && gates.size[3] > 1; }
  bool HasBetas() const { return betas.size[3] != 0; }
  bool HasPair() const { return reads.size[3] != 0; }
  /// Rows of the state, SequenceCount() * HV.
  int64_t StateCount() const { return SequenceCount() * values.size[2]; }
};

/// Results; null pointers are not written. `checkpoints` holds the state before
/// every 256th token and saves the gradient one pass over the tokens.
struct RecurrentOutputs {
  TensorView out;                // [B, T, HV, V]
  float* final_state = nullptr;  // [B or sequences, HV, K, V]
  float* checkpoints = nullptr;  // [RecurrentCheckpoints(in), HV, K, V]
};

/// Gradients of a scalar loss. Null pointers, and views without data, mean that
/// nothing flows in or that nothing is wanted.
struct RecurrentGradients {
  const float* checkpoints = nullptr;  // of the forward call; null: recomputed
  TensorView grad_out;                 // [B, T, HV, V]
  const float* grad_final_state = nullptr;
  TensorView grad_queries, grad_keys, grad_values;  // written, same shapes
  TensorView grad_gates;               // as gates; written when gates are given
  TensorView grad_betas;               // as betas; written when betas are given
  TensorView grad_reads, grad_writes;  // as reads and writes, if given
  float* grad_head_gates = nullptr;    // [HV]
  float* grad_bonus = nullptr;         // [HV, K]
  float* grad_initial_state = nullptr;
};

/// States that `checkpoints` holds per value head: one for each whole 256
/// tokens of every row, at most.
int64_t RecurrentCheckpoints(const RecurrentInputs& in);

/// States of a step, each [slots, HV, K, V] dense. Row b reads slot
/// read_slots[b] of `state` and writes slot write_slots[b] of `next`; null
/// means slot b, and a negative slot skips the row, whose output is zero. The
/// slot that is written may be the one that is read, but must not overlap it in
/// any other way, nor be another row's.
struct RecurrentState {
  const float* state = nullptr;
  float* next = nullptr;
  const int64_t* read_slots = nullptr;
  const int64_t* write_slots = nullptr;
};

}  // namespace tarn
