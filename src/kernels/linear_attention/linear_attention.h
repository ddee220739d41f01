// Linear attention (Katharopoulos et al. 2020, arXiv 2006.16236), float32
// state, float32 / bfloat16 / float16 inputs and outputs.
//
//   o_i = phi(q_i)^T S_i / phi(q_i)^T z_i                         eq. (8)-(9)
//   S_i = S_0 + sum_{j in A(i)} phi(k_j) v_j^T                    eq. (10)
//   z_i = z_0 + sum_{j in A(i)} phi(k_j)                          eq. (11)
//
// A(i) = { j < S : key j kept, and if causal j <= i + causal_offset }.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/executor.h"
#include "core/feature_map.h"
#include "core/tensor_view.h"

namespace tarn {

/// What the operator computes, apart from its tensors.
struct LinearAttentionOptions {
  bool causal = true;
  int64_t causal_offset = 0;  // used when causal; may be negative
  FeatureMap feature_map = FeatureMap::kElu1;
  Denominator denominator = Denominator::kExact;
  float eps = 1e-6f;   // compat only: o = n / (d + eps)
  float scale = 1.0f;  // multiplies phi(q); cancels under an exact denominator
  int64_t chunk_size = 0;  // tokens in one matrix step: 0 (best), 16, 32 or 64
};

/// Tensors of one call. All views of one dtype; B batch, T queries, S keys, H
/// query/key heads, HV = value heads (a multiple of H), K, V widths. Value head
/// h reads query/key head h / (HV / H). With cu_seqlens, B = 1 and N sequences
/// are packed along T = S.
struct LinearAttentionInputs {
  TensorView queries;                    // [B, T, H, K]
  TensorView keys;                       // [B, S, H, K]
  TensorView values;                     // [B, S, HV, V]
  const uint8_t* key_mask = nullptr;     // [B, S] dense, nonzero = keep
  const int64_t* key_lengths = nullptr;  // [B], in [0, S]
  const int64_t* cu_seqlens = nullptr;   // [sequences + 1], host memory
  int64_t sequences = 0;                 // with cu_seqlens
  const float* initial_S = nullptr;      // [B or sequences, HV, K, V] dense
  const float* initial_z = nullptr;      // [B or sequences, HV, K] dense
  // Every pointer is of a device, key_lengths and cu_seqlens as well.
  bool on_device = false;
};

/// Results; null pointers are not written. `denominators` is what the gradient
/// needs besides the inputs and the output: in exact mode the denominator of
/// phi(q) * scale scaled by a power of two, 0 where the row is empty.
struct LinearAttentionOutputs {
  TensorView out;                 // [B, T, HV, V]
  float* final_S = nullptr;       // [B or sequences, HV, K, V]
  float* final_z = nullptr;       // [B or sequences, HV, K]
  float* denominators = nullptr;  // [B, T, HV] dense
};

/// Throws ShapeError, DTypeError or ArgumentError naming the argument; reads no
/// tensor data except key_lengths and cu_seqlens.
void CheckLinearAttention(const LinearAttentionOptions& options,
                          const LinearAttentionInputs& inputs,
                          const LinearAttentionOutputs& outputs);

/// Bytes of scratch that LinearAttentionForward, and LinearAttentionBackward,
/// need with an executor of `width` workers. The scratch must be 64-byte
/// aligned.
size_t LinearAttentionWorkspaceBytes(const LinearAttentionOptions& options,
                                     const LinearAttentionInputs& inputs,
                                     int width);
size_t LinearAttentionBackwardWorkspaceBytes(
    const LinearAttentionOptions& options, const LinearAttentionInputs& inputs,
    int width);

/// Chunked form: O(T K V) time, and no memory of size T x S or T x K x V.
/// Checks first (as above), then runs on `executor`. Inputs are not modified;
/// outputs must not overlap inputs. Same bits for any executor width.
/// T, S, B = 0 are valid.
void LinearAttentionForward(const LinearAttentionOptions& options,
                            const LinearAttentionInputs& inputs,
                            const LinearAttentionOutputs& outputs,
                            Executor& executor, void* workspace);

/// Gradients of a scalar loss. `grad_out` [B, T, HV, V]; `out`, `denominators`
/// from the forward call; grad_final_* null means zero.
struct LinearAttentionGradients {
  TensorView out;
  const float* denominators = nullptr;
  TensorView grad_out;
  const float* grad_final_S = nullptr;
  const float* grad_final_z = nullptr;
  TensorView grad_queries, grad_keys, grad_values;  // written, same shapes
  float* grad_initial_S = nullptr;                  // written when not null
  float* grad_initial_z = nullptr;
};

/// Chunked gradient, two sweeps (states forward for dq, their gradients in
/// reverse for dk and dv): no state is saved or checkpointed.
void LinearAttentionBackward(const LinearAttentionOptions& options,
                             const LinearAttentionInputs& inputs,
                             const LinearAttentionGradients& gradients,
                             Executor& executor, void* workspace);

/// Recurrent form, one token for each of B rows and HV heads:
///   S += phi(k) v^T;  z += phi(k);  o = S^T phi(q) / z . phi(q)   eq.
///   (18)-(20)
/// state_S [B, HV, K, V], state_z [B, HV, K] are updated in place (pass copies
/// to keep the old state). queries, keys [B, 1, H, K]; values, out
/// [B, 1, HV, V]. Any mixture of strides. Allocates nothing.
void LinearAttentionStep(const LinearAttentionOptions& options,
                         const TensorView& queries, const TensorView& keys,
                         const TensorView& values, float* state_S,
                         float* state_z, const TensorView& out,
                         Executor& executor);

/// A state before and after: S [B, HV, K, V], z [B, HV, K], dense. The next
/// state may be the same memory, but must not overlap the old one in any other
/// way.
struct LinearAttentionState {
  const float *S = nullptr, *z = nullptr;
  float *next_S = nullptr, *next_z = nullptr;
};

/// The same from one state into another: no copy, one read and one write.
void LinearAttentionStepInto(const LinearAttentionOptions& options,
                             const TensorView& queries, const TensorView& keys,
                             const TensorView& values,
                             const LinearAttentionState& state,
                             const TensorView& out, Executor& executor);

/// Recurrent prefill: T tokens one after the other in the arithmetic of
/// LinearAttentionStep, so any split of a prompt gives the same bits. Shapes as
/// in LinearAttentionStep with T instead of 1.
void LinearAttentionPrefill(const LinearAttentionOptions& options,
                            const TensorView& queries, const TensorView& keys,
                            const TensorView& values, float* state_S,
                            float* state_z, const TensorView& out,
                            Executor& executor);

/// Reads a state without changing it, as cross attention does with the state of
/// its memory:
///   o = S^T phi(q) / z . phi(q)
/// for T queries of B rows: queries [B, T, H, K], state_S [B, HV, K, V],
/// state_z [B, HV, K], out [B, T, HV, V]. Each query's bits depend on that
/// query and its state alone. Any number of threads may read one state.
/// Allocates nothing.
void LinearAttentionRead(const LinearAttentionOptions& options,
                         const TensorView& queries, const float* state_S,
                         const float* state_z, const TensorView& out,
                         Executor& executor);

}  // namespace tarn
