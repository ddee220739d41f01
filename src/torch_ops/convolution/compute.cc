// The kernel of the short convolution on checked calls of the CPU.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>

#include "kernels/short_convolution/short_convolution.h"
#include "torch_ops/common/executor.h"
#include "torch_ops/common/memory.h"
#include "torch_ops/common/tensors.h"
#include "torch_ops/convolution/call.h"

namespace tarn::ops::convolution {
namespace {

// A call and the tensors that its pointers reach into.
struct Held {
  ConvolutionCall call;
  at::Tensor tokens;  // [B, T, 1, D]
  OptionalTensor weights;
  ShortConvolutionInputs inputs;

  explicit Held(const ConvolutionCall& given)
      : call(given), tokens(given.inputs.unsqueeze(2)), weights(given.weights) {
    inputs.inputs = ViewOf("inputs", tokens);
    inputs.weights = DenseFloats(weights);
    inputs.bias = DenseFloats(call.bias);
    inputs.width = call.weights.size(1);
    inputs.activation = call.activation == "silu"
                            ? ConvolutionActivation::kSilu
                            : ConvolutionActivation::kNone;
    inputs.lengths = DenseLongs(call.lengths);
    inputs.cu_seqlens = DenseLongs(call.cu_seqlens);
    if (call.cu_seqlens.has_value()) {
      inputs.sequences = call.cu_seqlens->size(0) - 1;
    }
    inputs.initial_state = DenseFloats(call.initial_state);
  }

  std::vector<int64_t> StateSizes() const {
    return {inputs.SequenceCount(), inputs.width - 1, inputs.inputs.size[3]};
  }
};

at::Tensor Absent() { return at::empty({0}, at::kFloat); }

}  // namespace

ConvolutionResults Compute(const ConvolutionCall& call) {
  const Held held(call);
  const at::Tensor out =
      EmptyDense(call.inputs.sizes(), call.inputs.scalar_type());
  const at::Tensor state =
      call.return_state ? EmptyDense(held.StateSizes()) : Absent();
  at::Tensor rows = out.unsqueeze(2);
  TorchExecutor executor(WorkersFor(call.inputs.numel()));
  ShortConvolutionForward(held.inputs, ViewOf("out", rows),
                          call.return_state ? state.data_ptr<float>() : nullptr,
                          executor);
  return {out, state};
}

Gradients ComputeGradients(const ConvolutionCall& call,
                           const at::Tensor& grad_out,
                           const at::Tensor& grad_state) {
  const Held held(call);
  const at::Tensor inputs =
      EmptyDense(call.inputs.sizes(), call.inputs.scalar_type());
  const at::Tensor weights = EmptyDense(call.weights.sizes());
  const at::Tensor bias =
      call.bias.has_value() ? EmptyDense(call.bias->sizes()) : Absent();
  const at::Tensor initial =
      call.initial_state.has_value() ? EmptyDense(held.StateSizes()) : Absent();
  at::Tensor given =
      (grad_out.defined() ? grad_out : at::zeros_like(call.inputs))
          .to(call.inputs.scalar_type())
          .unsqueeze(2);
  at::Tensor rows = inputs.unsqueeze(2);
  OptionalTensor state = NoneOr(grad_state);
  ShortConvolutionGradients g;
  g.grad_out = ViewOf("grad_out", given);
  g.grad_final_state = DenseFloats(state);
  g.grad_inputs = ViewOf("grad_inputs", rows);
  g.grad_weights = weights.data_ptr<float>();
  if (call.bias.has_value()) g.grad_bias = bias.data_ptr<float>();
  if (call.initial_state.has_value()) {
    g.grad_initial_state = initial.data_ptr<float>();
  }
  TorchExecutor executor(WorkersFor(call.inputs.numel()));
  const Workspace workspace(ShortConvolutionGradientBytes(held.inputs));
  ShortConvolutionBackward(held.inputs, g, executor, workspace.data());
  return {inputs, weights.to(call.weights.scalar_type()),
          call.bias.has_value() ? bias.to(call.bias->scalar_type()) : bias,
          initial};
}

}  // namespace tarn::ops::convolution
