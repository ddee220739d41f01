// Kernels and Meta forms of the linear-attention operators.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/library.h>

#include <cstdint>

#include "torch_ops/common/executor.h"
#include "torch_ops/common/memory.h"
#include "torch_ops/common/register.h"
#include "torch_ops/common/tensors.h"
#include "torch_ops/cuda/kernels.h"

namespace tarn::ops {
namespace {

float* Floats(const at::Tensor& tensor) {
  return tensor.numel() == 0 ? nullptr : tensor.data_ptr<float>();
}

// Results of the right shapes on any device; symbolic sizes stay symbolic.
// On the CPU large ones come from tarn's cache.
at::Tensor Empty(at::SymIntArrayRef shape, const at::TensorOptions& options) {
  const auto sizes = c10::asIntArrayRefSlowOpt(shape);
  if (sizes && options.device().is_cpu() &&
      !c10::impl::TorchDispatchModeTLS::any_modes_set()) {
    return EmptyDense(*sizes, c10::typeMetaToScalarType(options.dtype()));
  }
  return at::empty_symint(shape, options);
}

Results EmptyResults(const Operands& in, bool return_state) {
  const c10::SymInt states = in.cu_seqlens.has_value()
                                 ? in.cu_seqlens->sym_size(0) - 1
                                 : in.queries.sym_size(0);
  const auto heads = in.values.sym_size(2), d_key = in.keys.sym_size(3);
  const auto d_value = in.values.sym_size(3);
  const at::TensorOptions state =
      in.queries.options().dtype(ComputeType(in.queries));
  const auto empty = [&](std::initializer_list<c10::SymInt> shape) {
    const c10::SymInt nothing[] = {0};
    return Empty(return_state ? c10::SymIntArrayRef(shape)
                              : c10::SymIntArrayRef(nothing),
                 state);
  };
  return {
      Empty({in.queries.sym_size(0), in.queries.sym_size(1), heads, d_value},
            in.queries.options()),
      empty({states, heads, d_key, d_value}), empty({states, heads, d_key}),
      Empty({in.queries.sym_size(0), in.queries.sym_size(1), heads}, state)};
}

Gradients EmptyGradients(const Operands& in) {
  const auto like = [](const OptionalTensor& tensor, at::TensorOptions none) {
    return tensor.has_value() ? Empty(tensor->sym_sizes(), tensor->options())
                              : Empty({0}, none);
  };
  const at::TensorOptions state =
      in.queries.options().dtype(ComputeType(in.queries));
  return {like(in.queries, state), like(in.keys, state), like(in.values, state),
          like(in.initial_S, state), like(in.initial_z, state)};
}

}  // namespace

void RunForward(const KernelCall& call, Results& results) {
  auto& [out, final_S, final_z, denominators] = results;
  LinearAttentionOutputs outputs;
  outputs.out = ViewOf("out", out);
  outputs.final_S = Floats(final_S);
  outputs.final_z = Floats(final_z);
  outputs.denominators = Floats(denominators);
  if (call.inputs.on_device) return CudaLinearForward(call, outputs);
  TorchExecutor executor;
  const Workspace workspace(LinearAttentionWorkspaceBytes(
      call.options, call.inputs, executor.width()));
  LinearAttentionForward(call.options, call.inputs, outputs, executor,
                         workspace.data());
}

namespace {

// On the CPU, or on CUDA where its kernels serve the call.
Results ForwardKernels(const Operands& in, const Settings& settings,
                       bool return_state) {
  if (!KernelServesAttention(in.queries) && !CudaServes(in, settings)) {
    return ComposedLinearAttention(in, settings, return_state);
  }
  return WithTorchErrors([&] {
    const KernelCall call = MakeKernelCall(in, settings);
    Results results = EmptyResults(call.held, return_state);
    RunForward(call, results);
    return results;
  });
}

Results ForwardMeta(const Operands& in, const Settings&, bool return_state) {
  return EmptyResults(in, return_state);
}

// The gradient's kernel must have the dtype: float32, bfloat16 or float16.
void WantKernelDType(const at::Tensor& queries) {
  if (queries.scalar_type() != at::kDouble) return;
  throw DTypeError("linear_attention_backward: queries",
                   "float32, bfloat16 or float16",
                   "float64, whose gradient autograd takes from the composed "
                   "form of linear_attention");
}

void WantSizes(const char* name, const at::Tensor& tensor,
               at::IntArrayRef sizes) {
  if (tensor.sizes() == sizes) return;
  throw ShapeError(StrCat("linear_attention_backward: ", name),
                   ShapeText(sizes.vec()), ShapeText(tensor.sizes().vec()));
}

// Dense float32 of that shape, or null where the tensor is absent.
const float* WantFloats(const char* name, OptionalTensor& tensor,
                        at::IntArrayRef sizes) {
  if (!tensor.has_value()) return nullptr;
  WantSizes(name, *tensor, sizes);
  tensor = tensor->to(at::kFloat).contiguous();
  return tensor->const_data_ptr<float>();
}

// Checked views of what the gradient reads; `held` keeps copies alive.
LinearAttentionGradients GradientViews(const KernelCall& call,
                                       GradientOperands& held) {
  const LinearAttentionInputs& in = call.inputs;
  const int64_t batch = in.queries.size[0], seq_len = in.queries.size[1];
  const int64_t heads = in.values.size[2], d_key = in.keys.size[3];
  const int64_t d_value = in.values.size[3];
  WantSizes("out", held.out, {batch, seq_len, heads, d_value});
  WantSizes("grad_out", held.grad_out, {batch, seq_len, heads, d_value});
  held.out = held.out.to(call.held.queries.scalar_type());
  held.grad_out = held.grad_out.to(call.held.queries.scalar_type());
  OptionalTensor denominators = held.denominators;
  LinearAttentionGradients g;
  g.denominators =
      WantFloats("denominators", denominators, {batch, seq_len, heads});
  held.denominators = *denominators;
  g.out = ViewOf("out", held.out);
  g.grad_out = ViewOf("grad_out", held.grad_out);
  g.grad_final_S = WantFloats("grad_final_S", held.grad_final_S,
                              {call.states(), heads, d_key, d_value});
  g.grad_final_z = WantFloats("grad_final_z", held.grad_final_z,
                              {call.states(), heads, d_key});
  return g;
}

}  // namespace

void RunBackward(const KernelCall& call, const GradientOperands& gradients,
                 Gradients& results) {
  GradientOperands held = gradients;
  LinearAttentionGradients g = GradientViews(call, held);
  auto& [queries, keys, values, initial_S, initial_z] = results;
  g.grad_queries = ViewOf("grad_queries", queries);
  g.grad_keys = ViewOf("grad_keys", keys);
  g.grad_values = ViewOf("grad_values", values);
  g.grad_initial_S = Floats(initial_S);
  g.grad_initial_z = Floats(initial_z);
  if (call.inputs.on_device) return CudaLinearBackward(call, g);
  TorchExecutor executor;
  const Workspace workspace(LinearAttentionBackwardWorkspaceBytes(
      call.options, call.inputs, executor.width()));
  LinearAttentionBackward(call.options, call.inputs, g, executor,
                          workspace.data());
}

namespace {

Gradients BackwardKernels(const Operands& in, const GradientOperands& gradients,
                          const Settings& settings) {
  return WithTorchErrors([&] {
    WantKernelDType(in.queries);
    const KernelCall call = MakeKernelCall(in, settings);
    Gradients results = EmptyGradients(in);
    RunBackward(call, gradients, results);
    return results;
  });
}

Gradients BackwardMeta(const Operands& in, const GradientOperands&,
                       const Settings&) {
  return EmptyGradients(in);
}

StepResults StepKernels(const StepOperands& in, const Settings& settings) {
  return WithTorchErrors([&]() -> StepResults {
    const Operands sequence = AsSequence(in);
    if (!KernelServesAttention(in.queries) && !CudaServes(sequence, settings)) {
      return ComposedLinearAttentionStep(in, settings);
    }
    const KernelCall call = MakeKernelCall(sequence, settings);
    auto [out, S, z, _] = EmptyResults(call.held, /*return_state=*/true);
    at::Tensor old_S = S, old_z = z;
    if (in.state_S.has_value()) {
      old_S = in.state_S->contiguous();
      old_z = in.state_z->contiguous();
    } else {
      S.zero_();
      z.zero_();
    }
    const TensorView out_view = ViewOf("out", out);
    const LinearAttentionState state = {old_S.const_data_ptr<float>(),
                                        old_z.const_data_ptr<float>(),
                                        Floats(S), Floats(z)};
    if (call.inputs.on_device) {
      CudaLinearStep(call, state, out_view);
    } else {
      TorchExecutor executor;
      LinearAttentionStepInto(call.options, call.inputs.queries,
                              call.inputs.keys, call.inputs.values, state,
                              out_view, executor);
    }
    return {out.squeeze(1), S, z};
  });
}

StepResults StepMeta(const StepOperands& in, const Settings&) {
  const auto batch = in.queries.sym_size(0), heads = in.values.sym_size(1);
  const auto d_key = in.keys.sym_size(2), d_value = in.values.sym_size(2);
  const at::TensorOptions state =
      in.queries.options().dtype(ComputeType(in.queries));
  return {at::empty_symint({batch, heads, d_value}, in.queries.options()),
          at::empty_symint({batch, heads, d_key, d_value}, state),
          at::empty_symint({batch, heads, d_key}, state)};
}

void RegisterKernels(torch::Library& m) {
  m.impl("linear_attention", TORCH_FN(FlatForward<&ForwardKernels>));
  m.impl("linear_attention_backward", TORCH_FN(FlatBackward<&BackwardKernels>));
  m.impl("linear_attention_step", TORCH_FN(FlatStep<&StepKernels>));
}

TORCH_LIBRARY_IMPL(tarn, CPU, m) { RegisterKernels(m); }
TORCH_LIBRARY_IMPL(tarn, CUDA, m) { RegisterKernels(m); }

TORCH_LIBRARY_IMPL(tarn, Meta, m) {
  m.impl("linear_attention", TORCH_FN(FlatForward<&ForwardMeta>));
  m.impl("linear_attention_backward", TORCH_FN(FlatBackward<&BackwardMeta>));
  m.impl("linear_attention_step", TORCH_FN(FlatStep<&StepMeta>));
}

}  // namespace
}  // namespace tarn::ops
