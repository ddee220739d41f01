// torch.ops.tarn.short_convolution_step_: tokens that follow a window of
// inputs, which takes them in, in place and with channels before time, as
// causal_conv1d keeps it. One call of an operator, where its parts took ten.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>

#include <algorithm>
#include <string>

#include "core/error.h"
#include "torch_ops/common/call.h"
#include "torch_ops/common/tensors.h"
#include "torch_ops/common/wants.h"
#include "torch_ops/convolution/convolution.h"

namespace tarn::ops {
namespace convolution_step {
namespace {

void Check(const at::Tensor& window, const at::Tensor& inputs,
           const at::Tensor& weights) {
  const Wants wants("short_convolution_step_", window);
  if (inputs.dim() != 3 || weights.dim() != 2) {
    throw ShapeError(
        wants.Argument(inputs.dim() != 3 ? "inputs" : "weights"),
        inputs.dim() != 3 ? "[batch, channels, seq_len]" : "[channels, width]",
        SizesText((inputs.dim() != 3 ? inputs : weights).sym_sizes()));
  }
  const int64_t kept = std::max<int64_t>(weights.size(1) - 1, 0);
  if (window.dim() != 3 || window.size(0) != inputs.size(0) ||
      window.size(1) != inputs.size(1) || window.size(2) < kept) {
    throw ShapeError(wants.Argument("window"),
                     "[" + std::to_string(inputs.size(0)) + ", " +
                         std::to_string(inputs.size(1)) + ", " +
                         std::to_string(kept) + " or more]",
                     SizesText(window.sym_sizes()));
  }
  wants.Floating("window", window);
  wants.Device("inputs", inputs);
}

at::Tensor Step(at::Tensor& window, const at::Tensor& inputs,
                const at::Tensor& weights, const OptionalTensor& bias,
                c10::string_view activation) {
  return WithTorchErrors([&] {
    Check(window, inputs, weights);
    const int64_t length = window.size(2), kept = weights.size(1) - 1;
    ConvolutionCall call;
    call.inputs = inputs.transpose(1, 2);
    call.weights = weights;
    call.bias = bias;
    call.activation = std::string(activation);
    call.initial_state =
        window.slice(2, length - kept).transpose(1, 2).to(ComputeType(inputs));
    const at::Tensor out = std::get<0>(ShortConvolution(call));
    const at::Tensor seen =
        at::cat({window, inputs.to(window.scalar_type())}, 2);
    window.copy_(seen.slice(2, seen.size(2) - length));
    return out.transpose(1, 2);
  });
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def(
      "short_convolution_step_(Tensor(a!) window, Tensor inputs, "
      "Tensor weights, Tensor? bias, str activation) -> Tensor");
}
TORCH_LIBRARY_IMPL(tarn, CompositeExplicitAutograd, m) {
  m.impl("short_convolution_step_", TORCH_FN(Step));
}
TORCH_LIBRARY_IMPL(tarn, Autograd, m) {
  m.impl("short_convolution_step_",
         torch::autograd::autogradNotImplementedFallback());
}

}  // namespace
}  // namespace convolution_step
}  // namespace tarn::ops
