// Gated recurrences on torch tensors: a state S [K, V] a value head that decays
// and takes in a key and a value a token. decay_attention.h, delta_attention.h
// and dplr_attention.h under kernels/ have the equations and their sources.
//
// float32, bfloat16 and float16 by the kernels on the CPU; float64, other
// devices, torch.func and gradients of gradients by the composed form. Errors
// arrive as torch's: c10::TypeError for dtypes, c10::ValueError for the rest,
// before any work. Thread-safe; the same bits for any number of threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>

#include "torch_ops/common/call.h"

namespace tarn::ops {

/// What the operators take besides queries, keys [B, T, H, K] and values
/// [B, T, HV, V] of one dtype; HV is a multiple of H, and value head h reads
/// the queries and keys of head h / (HV / H).
struct GatedOptions {
  // Natural logarithms of decay factors: [HV], one a value head; [B, T, HV],
  // one a token too; [B, T, HV, K], one a channel. -inf is an exact reset.
  // Absent: no decay.
  OptionalTensor gates;
  OptionalTensor lengths;        // [B] int32 or int64: tokens in use
  OptionalTensor cu_seqlens;     // [N + 1]: sequences packed along T; B = 1
  OptionalTensor initial_state;  // [B or N, HV, K, V] float32 (float64)
  double scale = 1.0;            // multiplies the queries
  bool return_state = false;
};

struct GatedResult {
  at::Tensor out;          // [B, T, HV, V], dtype of values; 0 at pads
  at::Tensor final_state;  // [B or N, HV, K, V]; [0] unless asked for
};

/// bonus [HV, K]: the read comes before the token is taken in, which adds
/// itself by `bonus` alone (RWKV-6). O(B T HV K V) time. Saves the inputs and a
/// state every 256 tokens for the gradient.
GatedResult DecayAttention(const at::Tensor& queries, const at::Tensor& keys,
                           const at::Tensor& values,
                           const GatedOptions& options = {},
                           const OptionalTensor& bonus = {});

/// betas [B, T, HV]: how much of a value is written over what the state holds
/// at its key; any number, 0 to 1 (or 2) where keys have length 1.
GatedResult DeltaAttention(const at::Tensor& queries, const at::Tensor& keys,
                           const at::Tensor& values, const at::Tensor& betas,
                           const GatedOptions& options = {});

/// A diagonal plus a low-rank matrix before each token (RWKV-7): `reads`
/// [B, T, H, K] says what is read from the state before its decay, `writes`
/// [B, T, H, K] where that is added after it; HV = H.
GatedResult DplrAttention(const at::Tensor& queries, const at::Tensor& keys,
                          const at::Tensor& values, const at::Tensor& reads,
                          const at::Tensor& writes,
                          const GatedOptions& options = {});

}  // namespace tarn::ops
