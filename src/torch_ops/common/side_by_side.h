// Tensors that are pieces of one wider tensor, side by side along its last
// axis.
#pragma once

#include <ATen/core/Tensor.h>

namespace tarn::ops {

/// The tensor [B, T, sum of widths] of which these are consecutive pieces, if
/// they are: each [B, T, width], or [B, T, heads, width of one]. A view;
/// undefined otherwise, also for symbolic sizes and other devices. To autograd
/// it is a view of the first piece alone: not for tensors with a graph.
at::Tensor SideBySide(at::TensorList pieces);

}  // namespace tarn::ops
