// What other forms of linear attention use of the packed form.
#pragma once

#include <ATen/core/Tensor.h>

#include "torch_ops/common/call.h"

namespace tarn::ops {

/// Gradients of queries, keys and values that are side by side in one tensor,
/// as views of one tensor in the same places, so that one product can read them
/// without a copy. Undefined where they are stored otherwise, and for calls
/// that the packed operator does not know: states, packed sequences, an offset.
Operands GradientsSideBySide(const Operands& in, const GradientOperands& from,
                             const Settings& settings);

}  // namespace tarn::ops
