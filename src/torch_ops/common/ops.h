// tarn's operators on torch tensors, as C++ modules call them. Registered for
// Python as torch.ops.tarn.*; autograd is recorded where inputs require it.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>

#include "kernels/linear_attention/linear_attention.h"

namespace tarn::ops {

/// Linear attention over whole sequences, chunked form.
/// queries [B, T, H, K], keys [B, S, H, K], values [B, S, HV, V] of one dtype,
/// HV a multiple of H; key_mask [B, S] bool, true = keep, absent = keep all.
/// Returns the output [B, T, HV, V]. float32, bfloat16 and float16 run the
/// kernel on the CPU; float64, other devices and gradients of gradients run the
/// composed form (ComposedLinearAttention in call.h). Differentiable to any
/// order. Errors arrive as torch's: c10::TypeError for dtypes, c10::ValueError
/// for shapes, ranges and devices, with the text of tarn's own error.
/// Thread-safe. O(B T HV K V) time on torch's intra-op pool, same bits for any
/// thread count.
at::Tensor LinearAttention(const at::Tensor& queries, const at::Tensor& keys,
                           const at::Tensor& values,
                           const LinearAttentionOptions& options,
                           const std::optional<at::Tensor>& key_mask = {});

}  // namespace tarn::ops
