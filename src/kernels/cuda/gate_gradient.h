// dg of gates per token or head, after the passes of sweep.h. A gate n has a
// part in each path through it: from a key j < n, or from the state S before
// the chunk, to a query i >= n, or to the state S' after the chunk:
//
//   dg_n = sum_{j < n <= i} dP_ij P_ij + sum_{i >= n} dot_i
//          + sum_{j < n} dot'_j + D,   D = <e^{G} S, dS'>
//
// dot_i and dot'_j are the passes' dots of queries with dq, and of keys with
// dk, by way of the states. D follows from chunk to chunk out of them,
// <S', dS'> = D + sum dot', D = <S, dS> - sum dot, and <S, dS> is computed of
// the states themselves at the start of each segment.
#pragma once

#include <cstdint>

#include "core/tensor_view.h"
#include "kernels/cuda/sweep.h"

namespace tarn::cuda {

struct GateGradient {
  Sweep sweep;  // sequences, heads, sides, gates
  DeviceRows queries, keys, values, grad_out;
  float scale = 1.0f;
  int64_t d_key = 0, d_value = 0;
  const float *query_dots = nullptr, *key_dots = nullptr;  // [B, T, HV]
  float* across = nullptr;  // [B, T, HV], workspace: the first sum
  float* terms = nullptr;   // [slots, HV], workspace: sums of dg
  // States before each slot, or sweep.starts, and the gradients of those after
  // it.
  const float *key_slots = nullptr, *query_slots = nullptr;
  const float *initial_state = nullptr, *grad_initial_state = nullptr;
  TensorView grad_gates;             // or without data
  float* grad_head_gates = nullptr;  // [HV]
};

void Run(const GateGradient& gate, DType dtype, CudaStream stream);

}  // namespace tarn::cuda
