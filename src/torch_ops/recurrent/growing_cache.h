// Keys or values of all tokens so far, as tensors that are values: appending to
// one gives a new tensor. Where nothing was appended to it before, the two
// share memory, in which there is room for more: a token costs no copy of those
// before it.
#pragma once

#include <ATen/core/Tensor.h>

#include "torch_ops/common/call.h"

namespace tarn::ops {

/// [B, t + 1, H, W] float32: the rows of `cache` [B, t, H, W], or none with
/// t = 0 where there is no cache, and one more that the caller has to write.
/// Rows of a sequence are dense, sequences have a stride. Copies if `cache` has
/// been appended to already or was made elsewhere; amortised O(1) a token.
/// Takes at most twice the memory of its rows. Thread-safe.
at::Tensor WithRoom(const OptionalTensor& cache, at::IntArrayRef first_sizes);

}  // namespace tarn::ops
