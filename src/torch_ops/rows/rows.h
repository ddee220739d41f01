// What the operators of rows share: which calls their kernels serve, and rows
// in place.
#pragma once

#include <ATen/core/Tensor.h>

#include "core/dtype.h"
#include "torch_ops/common/forms.h"
#include "torch_ops/layers/call.h"

namespace tarn::ops {

/// The dtypes of the kernels.
inline bool IsKernelType(const at::Tensor& x) {
  return x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16 ||
         x.scalar_type() == at::kHalf;
}

inline DType KernelType(const at::Tensor& x) {
  return x.scalar_type() == at::kBFloat16 ? DType::kBF16
         : x.scalar_type() == at::kHalf   ? DType::kF16
                                          : DType::kF32;
}

/// Whether y has the dtype and as many entries along each axis as x.
inline bool IsLike(const at::Tensor& x, const at::Tensor& y) {
  return y.scalar_type() == x.scalar_type() && y.sym_sizes() == x.sym_sizes();
}

/// Elements between two rows, which are along the last axis of x; x is replaced
/// by a dense copy where they are not evenly spaced.
inline int64_t RowStride(at::Tensor& x) {
  const int64_t axes = x.dim(), width = x.size(-1);
  bool even = width <= 1 || x.stride(-1) == 1;
  int64_t stride = width, above = -1;  // above: of the axis before, if even
  for (int64_t axis = axes - 2; even && axis >= 0; --axis) {
    if (x.size(axis) == 1) continue;
    if (above < 0) {
      stride = x.stride(axis);
    } else {
      even = x.stride(axis) == above;
    }
    above = x.stride(axis) * x.size(axis);
  }
  if (even) return stride;
  x = x.contiguous();
  return width;
}

}  // namespace tarn::ops
