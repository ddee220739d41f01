// Selective scans on torch tensors: every channel has states with separate
// decays, whose rate a token chooses by its step, the layer of Mamba.
// kernels/selective_scan/selective_scan.h has the equation.
//
// float32, bfloat16 and float16 by the kernel on the CPU; float64, other
// devices, torch.func and gradients of gradients by the composed form. Errors
// arrive as torch's, before any work. Thread-safe; the same bits for any number
// of threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

#include "torch_ops/common/call.h"

namespace tarn::ops {

/// One call. Rows may each be of any floating dtype.
struct ScanCall {
  at::Tensor inputs, steps;      // x, delta [B, T, D]
  at::Tensor rates;              // A [D, N]
  at::Tensor keys, queries;      // B, C [B, T, N]
  OptionalTensor skip;           // D [D]; absent: zeros
  OptionalTensor lengths;        // [B] int32 or int64: tokens in use
  OptionalTensor cu_seqlens;     // [S + 1]: sequences packed along T; B = 1
  OptionalTensor initial_state;  // [B or S, D, N] float32 (float64); or absent
  bool return_state = false;
};

/// out [B, T, D] in the dtype of inputs, 0 at pads; final_state [B or S, D, N],
/// [0] unless asked for; checkpoints, [0] unless a gradient will ask for them.
using ScanResults = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

/// torch.ops.tarn.selective_scan. Throws c10::Error naming the argument.
ScanResults SelectiveScan(const ScanCall& call);

/// Throws tarn::Error naming the argument; reads no data. Sizes may be
/// symbolic.
void CheckScan(const ScanCall& call);

/// Computes the call by plain torch operators, differentiable to any order, as
/// an elementwise recurrence of D N channels: O(T log T) work, and memory for a
/// gradient.
ScanResults ComposedScan(const ScanCall& call);

/// The kernel on a checked call of the CPU. checkpoints: whether a gradient
/// will follow.
ScanResults ComputeScan(const ScanCall& call, bool checkpoints);

/// Gradients of inputs, steps, rates, keys, queries, skip, initial_state, the
/// last two [0] where they are absent.
using ScanGradients = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor,
                                 at::Tensor, at::Tensor, at::Tensor>;
/// checkpoints: of ComputeScan. grad_out, grad_state undefined: zero.
ScanGradients ComputeScanGradients(const ScanCall& call,
                                   const at::Tensor& checkpoints,
                                   const at::Tensor& grad_out,
                                   const at::Tensor& grad_state);

}  // namespace tarn::ops
