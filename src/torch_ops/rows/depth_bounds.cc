// torch.ops.tarn.depth_bounds: lower bounds of decay factors that rise over the
// layers (kernels/decay_gate/depth_bounds.h). A few thousand numbers once a
// step, so torch's operators compute it, on any device and to any derivative.
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include "torch_ops/common/call.h"
#include "torch_ops/common/tensors.h"
#include "torch_ops/common/wants.h"
#include "torch_ops/rows/row_ops.h"

namespace tarn::ops {
namespace depth_bounds {
namespace {

at::Tensor Forward(const at::Tensor& logits) {
  return WithTorchErrors([&] { return DepthBounds(logits); });
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def("depth_bounds(Tensor logits) -> Tensor", &Forward);
}

}  // namespace
}  // namespace depth_bounds

at::Tensor DepthBounds(const at::Tensor& logits) {
  const Wants wants("depth_bounds", logits);
  wants.Floating("logits", logits);
  if (logits.dim() != 2 || logits.sym_size(0) < 1) {
    throw ShapeError("depth_bounds: logits", "[layers, channels], layers > 0",
                     SizesText(logits.sym_sizes()));
  }
  const at::Tensor share = logits.to(ComputeType(logits)).softmax(0);
  return at::cat({at::zeros_like(share.slice(0, 0, 1)),
                  share.slice(0, 1).cumsum(0)})
      .to(logits.scalar_type());
}

}  // namespace tarn::ops
