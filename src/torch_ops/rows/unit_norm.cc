// torch.ops.tarn.unit_norm: rows of length 1 (kernels/unit_norm).
#include "kernels/unit_norm/unit_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/rsqrt.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "torch_ops/common/executor.h"
#include "torch_ops/common/memory.h"
#include "torch_ops/common/tensors.h"
#include "torch_ops/common/wants.h"
#include "torch_ops/rows/row_ops.h"
#include "torch_ops/rows/rows.h"

namespace tarn::ops {
namespace unit_norm {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Signature = at::Tensor(const at::Tensor&, double);
using BackwardSignature = at::Tensor(const at::Tensor&, const at::Tensor&,
                                     double);

void Check(const at::Tensor& x, double eps) {
  Wants("unit_norm", x).Floating("x", x);
  if (x.dim() < 1) throw ShapeError("unit_norm: x", "[..., width]", "[]");
  if (!(eps >= 0)) {
    throw ArgumentError("unit_norm: eps", "at least 0", StrCat(eps));
  }
}

at::Tensor Composed(const at::Tensor& x, double eps) {
  const at::Tensor wide = Wide(x);
  return (wide * at::rsqrt(wide.square().sum(-1, /*keepdim=*/true) + eps))
      .to(x.scalar_type())
      .contiguous();
}

bool Serves(const at::Tensor& x) {
  return IsKernelType(x) && OnKernelDevice(x);
}

// x stays or is replaced by a dense copy: its heads are evenly spaced within
// rows, as in a part of a wider tensor.
UnitNormCall Described(at::Tensor& x, double eps) {
  UnitNormCall call;
  call.dtype = KernelType(x);
  call.width = x.size(-1);
  call.heads = x.dim() > 1 ? x.size(-2) : 1;
  const int64_t row = call.heads * call.width;
  call.rows = row == 0 ? 0 : x.numel() / row;
  if (x.dim() > 1) x = x.flatten(-2);
  call.stride = RowStride(x);
  call.x = x.const_data_ptr();
  call.eps = static_cast<float>(eps);
  return call;
}

at::Tensor ForwardCpu(const at::Tensor& x, double eps) {
  if (!Serves(x)) return Composed(x, eps);
  at::Tensor held = x;
  const UnitNormCall call = Described(held, eps);
  const at::Tensor y = EmptyDense(x.sizes(), x.scalar_type());
  TorchExecutor executor(WorkersFor(x.numel()));
  UnitNormForward(call, y.data_ptr(), executor);
  return y;
}

at::Tensor BackwardCpu(const at::Tensor& grad_y, const at::Tensor& x,
                       double eps) {
  at::Tensor held = x;
  const UnitNormCall call = Described(held, eps);
  const at::Tensor flow = grad_y.to(x.scalar_type()).contiguous();
  const at::Tensor grad_x = EmptyDense(x.sizes(), x.scalar_type());
  TorchExecutor executor(WorkersFor(x.numel()));
  UnitNormBackward(call, flow.const_data_ptr(), grad_x.data_ptr(), executor);
  return grad_x;
}

at::Tensor BackwardMeta(const at::Tensor&, const at::Tensor& x, double) {
  return at::empty_symint(x.sym_sizes(), x.options());
}

at::Tensor Dispatch(const at::Tensor& x, double eps) {
  static const auto op = FindOp<Signature>("tarn::unit_norm");
  return op.call(x, eps);
}

struct UnitFunction : public torch::autograd::Function<UnitFunction> {
  static constexpr bool is_traceable = true;

  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            double eps) {
    at::AutoDispatchBelowADInplaceOrView guard;
    ctx->save_for_backward({x});
    ctx->saved_data["eps"] = eps;
    return Dispatch(x, eps);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const double eps = ctx->saved_data["eps"].toDouble();
    if (at::GradMode::is_enabled()) {  // the gradient may be differentiated
      variable_list found =
          ComposedGradients(saved, grads, [&](const variable_list& x) {
            return variable_list{Composed(x[0], eps)};
          });
      found.resize(2);
      return found;
    }
    static const auto op =
        FindGradientOp<BackwardSignature>("tarn::unit_norm_backward");
    return {op.call(grads[0], saved[0], eps), at::Tensor()};
  }
};

at::Tensor ForwardAutograd(const at::Tensor& x, double eps) {
  if (!Serves(x)) return Composed(x, eps);
  if (!WantsGradient(x)) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return Dispatch(x, eps);
  }
  return UnitFunction::apply(x, eps);
}

template <at::Tensor (*kForward)(const at::Tensor&, double)>
at::Tensor Flat(const at::Tensor& x, double eps) {
  return WithTorchErrors([&] {
    Check(x, eps);
    return kForward(x, eps);
  });
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def("unit_norm(Tensor x, float eps=1e-6) -> Tensor");
  m.def("unit_norm_backward(Tensor grad_y, Tensor x, float eps) -> Tensor");
}
TORCH_LIBRARY_IMPL(tarn, CPU, m) {
  m.impl("unit_norm", TORCH_FN(Flat<&ForwardCpu>));
  m.impl("unit_norm_backward", TORCH_FN(BackwardCpu));
}
TORCH_LIBRARY_IMPL(tarn, Meta, m) {
  m.impl("unit_norm", TORCH_FN(Flat<&Composed>));
  m.impl("unit_norm_backward", TORCH_FN(BackwardMeta));
}
// Devices without kernels, and torch.func.vmap.
TORCH_LIBRARY_IMPL(tarn, CompositeExplicitAutograd, m) {
  m.impl("unit_norm", TORCH_FN(Flat<&Composed>));
}
TORCH_LIBRARY_IMPL(tarn, FuncTorchBatched, m) {
  m.impl("unit_norm", TORCH_FN(Flat<&Composed>));
}
TORCH_LIBRARY_IMPL(tarn, Autograd, m) {
  m.impl("unit_norm", TORCH_FN(Flat<&ForwardAutograd>));
  m.impl("unit_norm_backward",
         torch::autograd::autogradNotImplementedFallback());
}

}  // namespace
}  // namespace unit_norm

at::Tensor UnitNorm(const at::Tensor& x, double eps) {
  return unit_norm::Dispatch(x, eps);
}

}  // namespace tarn::ops
