// tarn's operators on torch tensors, as C++ modules call them. Registered for
// Python as torch.ops.tarn.*; autograd is recorded where inputs require it.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>

#include "kernels/linear_attention/linear_attention.h"

namespace tarn::ops {

/// queries, keys [B, T, H, K]; values [B, T, HV, V]; key_mask [B, S] bool.
/// Returns the output [B, T, HV, V]. The kernel for float32, bfloat16 and
/// float16; the composed form for float64.
at::Tensor LinearAttention(const at::Tensor& queries, const at::Tensor& keys,
                           const at::Tensor& values,
                           const LinearAttentionOptions& options,
                           const std::optional<at::Tensor>& key_mask = {});

}  // namespace tarn::ops
