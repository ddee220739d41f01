// Tensors that are pieces of one wider tensor, side by side along its last
// axis.
#pragma once

#include <ATen/core/Tensor.h>

namespace tarn::ops {

/// The tensor [B, T, sum of widths] whose pieces these are, in their order,
/// where they are: each [B, T, width], or [B, T, heads, width of one]. A view;
/// undefined where they are anything else, symbolic sizes and other devices
/// included. Of the first alone to autograd: not for tensors with a graph.
at::Tensor SideBySide(at::TensorList pieces);

}  // namespace tarn::ops
