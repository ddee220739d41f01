// Checks, composed form and kernel of the gated norm.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sigmoid.h>

#include "core/error.h"
#include "kernels/gated_norm/gated_norm.h"
#include "torch_ops/common/call.h"
#include "torch_ops/common/executor.h"
#include "torch_ops/common/memory.h"
#include "torch_ops/common/tensors.h"
#include "torch_ops/common/wants.h"
#include "torch_ops/layers/gated_norm.h"

namespace tarn::ops::gated_norm {

void Check(const GatedNormCall& call) {
  const at::Tensor& x = call.x;
  const Wants want("gated_norm", x);
  want.Floating("x", x);
  if (x.dim() != 4 || x.sym_size(2) < 1 || x.sym_size(3) < 1) {
    throw ShapeError(want.Argument("x"), "[batch, seq_len, groups, width]",
                     SizesText(x.sym_sizes()));
  }
  const c10::SymInt groups = x.sym_size(2), width = x.sym_size(3);
  want.Device("weight", call.weight);
  want.Floating("weight", call.weight);
  if (call.weight.dim() == 2) {
    want.Sizes("weight", call.weight, {groups, width});
  } else {
    want.Sizes("weight", call.weight, {width});
  }
  if (call.bias.has_value()) {
    want.Device("bias", *call.bias);
    want.Floating("bias", *call.bias);
    want.Sizes("bias", *call.bias, call.weight.sym_sizes().vec());
  }
  if (call.gate.has_value()) {
    want.Device("gate", *call.gate);
    want.DType("gate", *call.gate, x.scalar_type());
    want.Sizes("gate", *call.gate, x.sym_sizes().vec());
  }
  if (call.activation != "silu" && call.activation != "sigmoid") {
    throw ArgumentError(want.Argument("activation"), "silu or sigmoid",
                        call.activation);
  }
  if (!(call.eps >= 0)) {  // NaN is refused too
    throw ArgumentError(want.Argument("eps"), "at least 0", StrCat(call.eps));
  }
}

at::Tensor Composed(const GatedNormCall& call) {
  Check(call);
  const at::ScalarType type = ComputeType(call.x);
  at::Tensor gate;
  if (call.gate.has_value()) {
    const at::Tensor z = Wide(*call.gate);
    gate = at::sigmoid(z);
    if (call.activation == "silu") gate = z * gate;
  }
  at::Tensor u = Wide(call.x);
  if (gate.defined() && call.gate_first) u = u * gate;
  if (call.centred) u = u - at::mean(u, {-1}, /*keepdim=*/true);
  const at::Tensor squares = at::mean(u * u, {-1}, /*keepdim=*/true);
  at::Tensor y = u * at::rsqrt(squares + call.eps) * call.weight.to(type);
  if (call.bias.has_value()) y = y + call.bias->to(type);
  if (gate.defined() && !call.gate_first) y = y * gate;
  // Dense, as the kernel's result is, whatever the strides of x.
  return y.to(call.x.scalar_type()).contiguous();
}

namespace {

// A call and the tensors that its pointers reach into.
struct Held {
  GatedNormCall call;
  OptionalTensor weight;
  GatedNormOptions options;
  GatedNormInputs inputs;

  explicit Held(const GatedNormCall& given)
      : call(given), weight(given.weight) {
    options.groups = call.x.size(2);
    options.width = call.x.size(3);
    options.eps = call.eps;
    options.centred = call.centred;
    options.activation =
        call.activation == "silu" ? NormGate::kSilu : NormGate::kSigmoid;
    options.gate_first = call.gate_first;
    options.weight_by_group = call.weight.dim() == 2;
    inputs.x = ViewOf("x", call.x);
    if (call.gate.has_value()) inputs.gate = ViewOf("gate", *call.gate);
    inputs.weight = DenseFloats(weight);
    inputs.bias = DenseFloats(call.bias);
  }
};

at::Tensor Absent() { return at::empty({0}, at::kFloat); }

}  // namespace

at::Tensor Compute(const GatedNormCall& call) {
  const Held held(call);
  at::Tensor out = EmptyDense(call.x.sizes(), call.x.scalar_type());
  TorchExecutor executor(WorkersFor(call.x.numel()));
  GatedNormForward(held.options, held.inputs, ViewOf("out", out), executor);
  return out;
}

Gradients ComputeGradients(const GatedNormCall& call,
                           const at::Tensor& grad_out) {
  const Held held(call);
  const bool bias = call.bias.has_value(), gate = call.gate.has_value();
  const at::ScalarType type = call.x.scalar_type();
  at::Tensor given = grad_out.to(type);
  at::Tensor grad_x = EmptyDense(call.x.sizes(), type);
  at::Tensor grad_gate = gate ? EmptyDense(call.x.sizes(), type) : Absent();
  const at::Tensor grad_weight = EmptyDense(call.weight.sizes());
  const at::Tensor grad_bias = bias ? EmptyDense(call.bias->sizes()) : Absent();
  GatedNormGradients g;
  g.grad_out = ViewOf("grad_out", given);
  g.grad_x = ViewOf("grad_x", grad_x);
  if (gate) g.grad_gate = ViewOf("grad_gate", grad_gate);
  g.grad_weight = grad_weight.data_ptr<float>();
  if (bias) g.grad_bias = grad_bias.data_ptr<float>();
  TorchExecutor executor(WorkersFor(call.x.numel()));
  const Workspace workspace(
      GatedNormGradientBytes(held.options, held.inputs.x, executor.width()));
  GatedNormBackward(held.options, held.inputs, g, executor, workspace.data());
  return {grad_x, grad_weight.to(call.weight.scalar_type()),
          bias ? grad_bias.to(call.bias->scalar_type()) : grad_bias, grad_gate};
}

}  // namespace tarn::ops::gated_norm
