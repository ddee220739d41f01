// torch.ops.tarn.head_scale: value heads times a factor each, added to a base
// (kernels/head_scale).
#include "kernels/head_scale/head_scale.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
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
namespace head_scale {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Two = std::tuple<at::Tensor, at::Tensor>;  // of values and factors
using Signature = at::Tensor(const at::Tensor&, const at::Tensor&,
                             const OptionalTensor&);
using BackwardSignature = Two(const at::Tensor&, const at::Tensor&,
                              const at::Tensor&);

struct Call {
  at::Tensor values, factors;
  OptionalTensor base;
};

void Check(const Call& in) {
  const Wants wants("head_scale", in.values);
  wants.Floating("values", in.values);
  wants.Floating("factors", in.factors);
  wants.Device("factors", in.factors);
  if (in.values.dim() < 2) {
    throw ShapeError("head_scale: values", "[..., heads, width]",
                     SizesText(in.values.sym_sizes()));
  }
  const auto sizes = in.values.sym_sizes();
  const auto rows = sizes.slice(0, sizes.size() - 1);
  if (in.factors.dim() == 1) {
    wants.Sizes("factors", in.factors, {rows.back()});
  } else {
    wants.Sizes("factors", in.factors, rows.vec());
  }
  if (!in.base.has_value()) return;
  wants.Device("base", *in.base);
  wants.Floating("base", *in.base);
  wants.Sizes("base", *in.base, sizes.vec());
}

bool Serves(const Call& in) {
  return IsKernelType(in.values) &&
         (!in.base.has_value() || IsLike(in.values, *in.base)) &&
         OnKernelDevice(in.values, in.factors, in.base);
}

at::Tensor Composed(const Call& in) {
  const at::ScalarType type = ComputeType(in.values);
  at::Tensor y = in.values.to(type) * in.factors.to(type).unsqueeze(-1);
  if (in.base.has_value()) y = in.base->to(type) + y;
  const at::Tensor& like = in.base.has_value() ? *in.base : in.values;
  return y.to(like.scalar_type()).contiguous();
}

// A call and the tensors that its pointers reach into.
struct Held {
  at::Tensor values, base;
  OptionalTensor factors;
  HeadScaleCall call;

  explicit Held(const Call& in)
      : values(in.values.flatten(-2)), factors(in.factors) {
    call.dtype = KernelType(values);
    call.heads = in.values.size(-2);
    call.width = in.values.size(-1);
    const int64_t row = call.heads * call.width;
    call.rows = row == 0 ? 0 : in.values.numel() / row;
    call.stride = RowStride(values);
    call.values = values.const_data_ptr();
    call.factors = DenseFloats(factors);
    call.shared = in.factors.dim() == 1;
    if (in.base.has_value()) {
      base = in.base->contiguous();
      call.base = base.const_data_ptr();
    }
  }
};

at::Tensor ForwardCpu(const Call& in) {
  if (!Serves(in)) return Composed(in);
  const Held held(in);
  const at::Tensor y = EmptyDense(in.values.sizes(), in.values.scalar_type());
  TorchExecutor executor(WorkersFor(in.values.numel()));
  HeadScaleForward(held.call, y.data_ptr(), executor);
  return y;
}

Two BackwardCpu(const at::Tensor& grad_y, const at::Tensor& values,
                const at::Tensor& factors) {
  const Held held({values, factors, {}});
  const at::Tensor flow = grad_y.to(values.scalar_type()).contiguous();
  const at::Tensor by_values = EmptyDense(values.sizes(), values.scalar_type());
  const at::Tensor by_factors = EmptyDense(factors.sizes());
  if (held.call.rows == 0) by_factors.zero_();
  TorchExecutor executor(WorkersFor(values.numel()));
  const Workspace workspace(HeadScaleGradientBytes(held.call));
  HeadScaleBackward(held.call, flow.const_data_ptr(), by_values.data_ptr(),
                    by_factors.data_ptr<float>(), executor, workspace.data());
  return {by_values, by_factors.to(factors.scalar_type())};
}

Two BackwardMeta(const at::Tensor&, const at::Tensor& values,
                 const at::Tensor& factors) {
  const auto like = [](const at::Tensor& x) {
    return at::empty_symint(x.sym_sizes(), x.options());
  };
  return {like(values), like(factors)};
}

at::Tensor Dispatch(const Call& in) {
  static const auto op = FindOp<Signature>("tarn::head_scale");
  return op.call(in.values, in.factors, in.base);
}

struct ScaleFunction : public torch::autograd::Function<ScaleFunction> {
  static constexpr bool is_traceable = true;

  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& values,
                            const at::Tensor& factors,
                            const OptionalTensor& base) {
    at::AutoDispatchBelowADInplaceOrView guard;
    ctx->save_for_backward({values, factors});
    ctx->saved_data["base"] = base.has_value();
    return Dispatch({values, factors, base});
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor by_base =
        ctx->saved_data["base"].toBool() ? grads[0] : at::Tensor();
    if (at::GradMode::is_enabled()) {  // the gradient may be differentiated
      variable_list found =
          ComposedGradients(saved, grads, [&](const variable_list& x) {
            return variable_list{Composed({x[0], x[1], {}})};
          });
      return {found[0], found[1], by_base};
    }
    static const auto op =
        FindGradientOp<BackwardSignature>("tarn::head_scale_backward");
    const auto [by_values, by_factors] = op.call(grads[0], saved[0], saved[1]);
    return {by_values, by_factors, by_base};
  }
};

at::Tensor ForwardAutograd(const Call& in) {
  if (!Serves(in)) return Composed(in);
  if (!WantsGradient(in.values, in.factors, in.base)) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return Dispatch(in);
  }
  return ScaleFunction::apply(in.values, in.factors, in.base);
}

template <at::Tensor (*kForward)(const Call&)>
at::Tensor Flat(const at::Tensor& values, const at::Tensor& factors,
                const OptionalTensor& base) {
  return WithTorchErrors([&] {
    const Call in = {values, factors, base};
    Check(in);
    return kForward(in);
  });
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def(
      "head_scale(Tensor values, Tensor factors, Tensor? base=None) -> Tensor");
  m.def(
      "head_scale_backward(Tensor grad_y, Tensor values, Tensor factors) -> "
      "(Tensor grad_values, Tensor grad_factors)");
}
TORCH_LIBRARY_IMPL(tarn, CPU, m) {
  m.impl("head_scale", TORCH_FN(Flat<&ForwardCpu>));
  m.impl("head_scale_backward", TORCH_FN(BackwardCpu));
}
TORCH_LIBRARY_IMPL(tarn, Meta, m) {
  m.impl("head_scale", TORCH_FN(Flat<&Composed>));
  m.impl("head_scale_backward", TORCH_FN(BackwardMeta));
}
// Devices without kernels, and torch.func.vmap.
TORCH_LIBRARY_IMPL(tarn, CompositeExplicitAutograd, m) {
  m.impl("head_scale", TORCH_FN(Flat<&Composed>));
}
TORCH_LIBRARY_IMPL(tarn, FuncTorchBatched, m) {
  m.impl("head_scale", TORCH_FN(Flat<&Composed>));
}
TORCH_LIBRARY_IMPL(tarn, Autograd, m) {
  m.impl("head_scale", TORCH_FN(Flat<&ForwardAutograd>));
  m.impl("head_scale_backward",
         torch::autograd::autogradNotImplementedFallback());
}

}  // namespace
}  // namespace head_scale

at::Tensor HeadScale(const at::Tensor& values, const at::Tensor& factors,
                     const OptionalTensor& base) {
  return head_scale::Dispatch({values, factors, base});
}

}  // namespace tarn::ops
