// torch.ops.tarn.row_mixes: x + delta w for each of several weights
// (kernels/row_mixes). The kernel takes weights of the last axis; what else
// torch can broadcast is composed.
#include "kernels/row_mixes/row_mixes.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "torch_ops/common/executor.h"
#include "torch_ops/common/memory.h"
#include "torch_ops/common/tensors.h"
#include "torch_ops/rows/row_ops.h"
#include "torch_ops/rows/rows.h"

namespace tarn::ops {
namespace row_mixes {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Tensors = std::vector<at::Tensor>;
// Gradients of x, delta and the weights.
using Gradients = std::tuple<at::Tensor, at::Tensor, Tensors>;
using Signature = Tensors(const at::Tensor&, const at::Tensor&, at::TensorList);
using BackwardSignature = Gradients(at::TensorList, const at::Tensor&,
                                    at::TensorList);

bool Serves(const at::Tensor& x, const at::Tensor& delta,
            at::TensorList weights) {
  if (!IsKernelType(x) || x.dim() < 1 || !IsLike(x, delta)) return false;
  if (weights.empty() || weights.size() > kMostMixes) return false;
  if (!OnKernelDevice(x, delta)) return false;
  for (const at::Tensor& weight : weights) {
    // As many numbers as the last axis has, along its own last one.
    if (!IsKernelType(weight) || weight.dim() < 1 || weight.dim() > x.dim() ||
        weight.scalar_type() != weights[0].scalar_type() ||
        weight.sym_size(-1) != x.sym_size(-1) ||
        weight.sym_numel() != x.sym_size(-1) || !OnKernelDevice(x, weight)) {
      return false;
    }
  }
  return true;
}

Tensors Composed(const at::Tensor& x, const at::Tensor& delta,
                 at::TensorList weights) {
  const at::ScalarType type = ComputeType(x);
  const at::Tensor now = x.to(type), change = delta.to(type);
  Tensors outs;
  for (const at::Tensor& weight : weights) {
    outs.push_back(at::addcmul(now, change, weight.to(type))
                       .to(x.scalar_type())
                       .contiguous());
  }
  return outs;
}

// A call and the tensors that its pointers reach into.
struct Held {
  at::Tensor delta;
  Tensors weights;
  RowMixInputs inputs;

  Held(const at::Tensor& change, at::TensorList given)
      : delta(change.contiguous()) {
    inputs.dtype = KernelType(delta);
    inputs.weight_dtype = KernelType(given[0]);
    inputs.width = delta.size(-1);
    inputs.rows = inputs.width == 0 ? 0 : delta.numel() / inputs.width;
    inputs.delta = delta.const_data_ptr();
    for (const at::Tensor& weight : given) {
      weights.push_back(weight.contiguous());
      inputs.weights[inputs.count++] = weights.back().const_data_ptr();
    }
  }
};

Tensors ForwardCpu(const at::Tensor& x, const at::Tensor& delta,
                   at::TensorList weights) {
  if (!Serves(x, delta, weights)) return Composed(x, delta, weights);
  Held held(delta, weights);
  const at::Tensor now = x.contiguous();
  held.inputs.x = now.const_data_ptr();
  Tensors outs;
  void* data[kMostMixes];
  for (int j = 0; j < held.inputs.count; ++j) {
    outs.push_back(EmptyDense(x.sizes(), x.scalar_type()));
    data[j] = outs.back().data_ptr();
  }
  TorchExecutor executor(WorkersFor(x.numel()));
  const Workspace workspace(RowMixesForwardBytes(held.inputs));
  RowMixesForward(held.inputs, data, executor, workspace.data());
  return outs;
}

Gradients BackwardCpu(at::TensorList grad_outs, const at::Tensor& delta,
                      at::TensorList weights) {
  const Held held(delta, weights);
  Tensors flows;
  RowMixGradients grad;
  for (const at::Tensor& grad_out : grad_outs) {
    flows.push_back(grad_out.to(delta.scalar_type()).contiguous());
    grad.grad_outs[flows.size() - 1] = flows.back().const_data_ptr();
  }
  const at::Tensor by_x = EmptyDense(delta.sizes(), delta.scalar_type());
  const at::Tensor by_delta = EmptyDense(delta.sizes(), delta.scalar_type());
  const at::Tensor sums = EmptyDense({held.inputs.count, held.inputs.width});
  grad.grad_x = by_x.data_ptr();
  grad.grad_delta = by_delta.data_ptr();
  grad.grad_weights = sums.data_ptr<float>();
  TorchExecutor executor(WorkersFor(delta.numel()));
  const Workspace workspace(RowMixesGradientBytes(held.inputs));
  RowMixesBackward(held.inputs, grad, executor, workspace.data());
  Tensors by_weight;
  for (size_t j = 0; j < weights.size(); ++j) {
    // A tensor with its own memory.
    const at::Tensor row =
        EmptyDense(weights[j].sizes(), weights[j].scalar_type());
    row.copy_(sums[static_cast<int64_t>(j)].view(weights[j].sizes()));
    by_weight.push_back(row);
  }
  return {by_x, by_delta, by_weight};
}

Gradients BackwardMeta(at::TensorList, const at::Tensor& delta,
                       at::TensorList weights) {
  const auto like = [](const at::Tensor& x) {
    return at::empty_symint(x.sym_sizes(), x.options());
  };
  Tensors by_weight;
  for (const at::Tensor& weight : weights) by_weight.push_back(like(weight));
  return {like(delta), like(delta), by_weight};
}

Tensors Dispatch(const at::Tensor& x, const at::Tensor& delta,
                 at::TensorList weights) {
  static const auto op = FindOp<Signature>("tarn::row_mixes");
  return op.call(x, delta, weights);
}

struct MixFunction : public torch::autograd::Function<MixFunction> {
  static constexpr bool is_traceable = true;

  static variable_list forward(AutogradContext* ctx, const at::Tensor& x,
                               const at::Tensor& delta,
                               at::TensorList weights) {
    at::AutoDispatchBelowADInplaceOrView guard;
    variable_list saved = {x, delta};
    saved.insert(saved.end(), weights.begin(), weights.end());
    ctx->save_for_backward(saved);
    return Dispatch(x, delta, weights);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list s = ctx->get_saved_variables();
    const auto weights = [](const variable_list& all) {
      return at::TensorList(all).slice(2);
    };
    if (at::GradMode::is_enabled()) {  // the gradient may be differentiated
      return ComposedGradients(s, grads, [&](const variable_list& x) {
        return Composed(x[0], x[1], weights(x));
      });
    }
    static const auto op =
        FindGradientOp<BackwardSignature>("tarn::row_mixes_backward");
    auto [by_x, by_delta, by_weight] = op.call(grads, s[1], weights(s));
    variable_list found = {by_x, by_delta};
    found.insert(found.end(), by_weight.begin(), by_weight.end());
    return found;
  }
};

Tensors ForwardAutograd(const at::Tensor& x, const at::Tensor& delta,
                        at::TensorList weights) {
  if (!Serves(x, delta, weights)) return Composed(x, delta, weights);
  bool wants = WantsGradient(x, delta);
  for (const at::Tensor& weight : weights) {
    wants = wants || WantsGradient(weight);
  }
  if (!wants) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return Dispatch(x, delta, weights);
  }
  return MixFunction::apply(x, delta, weights);
}

template <Tensors (*kForward)(const at::Tensor&, const at::Tensor&,
                              at::TensorList)>
Tensors Flat(const at::Tensor& x, const at::Tensor& delta,
             at::TensorList weights) {
  return WithTorchErrors([&] { return kForward(x, delta, weights); });
}

template <Gradients (*kBackward)(at::TensorList, const at::Tensor&,
                                 at::TensorList)>
Gradients FlatBackward(at::TensorList grad_outs, const at::Tensor& delta,
                       at::TensorList weights) {
  return WithTorchErrors([&] { return kBackward(grad_outs, delta, weights); });
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def("row_mixes(Tensor x, Tensor delta, Tensor[] weights) -> Tensor[]");
  m.def(
      "row_mixes_backward(Tensor[] grad_outs, Tensor delta, Tensor[] weights) "
      "-> (Tensor grad_x, Tensor grad_delta, Tensor[] grad_weights)");
}
TORCH_LIBRARY_IMPL(tarn, CPU, m) {
  m.impl("row_mixes", TORCH_FN(Flat<&ForwardCpu>));
  m.impl("row_mixes_backward", TORCH_FN(FlatBackward<&BackwardCpu>));
}
TORCH_LIBRARY_IMPL(tarn, Meta, m) {
  m.impl("row_mixes", TORCH_FN(Flat<&Composed>));
  m.impl("row_mixes_backward", TORCH_FN(FlatBackward<&BackwardMeta>));
}
// Devices without kernels, and torch.func.vmap.
TORCH_LIBRARY_IMPL(tarn, CompositeExplicitAutograd, m) {
  m.impl("row_mixes", TORCH_FN(Flat<&Composed>));
}
TORCH_LIBRARY_IMPL(tarn, FuncTorchBatched, m) {
  m.impl("row_mixes", TORCH_FN(Flat<&Composed>));
}
TORCH_LIBRARY_IMPL(tarn, Autograd, m) {
  m.impl("row_mixes", TORCH_FN(Flat<&ForwardAutograd>));
  m.impl("row_mixes_backward",
         torch::autograd::autogradNotImplementedFallback());
}

}  // namespace
}  // namespace row_mixes

std::vector<at::Tensor> RowMixes(const at::Tensor& x, const at::Tensor& delta,
                                 const std::vector<at::Tensor>& weights) {
  return row_mixes::Dispatch(x, delta, weights);
}

}  // namespace tarn::ops
