// torch.ops.tarn.gate_correction: RWKV-7's correction of the output and the
// output gate (kernels/gate_correction). The kernel takes tensors of one dtype.
#include "kernels/gate_correction/gate_correction.h"

#include <ATen/TensorOperators.h>
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
namespace gate_correction {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
// Gradients of o, r, k, weight, v, g.
using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor,
                             at::Tensor, at::Tensor>;
using Signature = at::Tensor(const at::Tensor&, const at::Tensor&,
                             const at::Tensor&, const at::Tensor&,
                             const at::Tensor&, const at::Tensor&);
using BackwardSignature = Gradients(const at::Tensor&, const at::Tensor&,
                                    const at::Tensor&, const at::Tensor&,
                                    const at::Tensor&, const at::Tensor&,
                                    const at::Tensor&);

struct Call {
  at::Tensor o;       // [..., H W]
  at::Tensor r, k;    // [..., H, W]
  at::Tensor weight;  // [H, W]
  at::Tensor v;       // as r
  at::Tensor g;       // as o
};

bool Serves(const Call& in) {
  const at::Tensor& r = in.r;
  if (!IsKernelType(in.o) || r.scalar_type() != in.o.scalar_type()) {
    return false;
  }
  return r.dim() >= 2 && in.weight.is_floating_point() &&
         in.weight.dim() == 2 && in.weight.sym_size(0) == r.sym_size(-2) &&
         in.weight.sym_size(1) == r.sym_size(-1) && IsLike(r, in.k) &&
         IsLike(r, in.v) && IsLike(in.o, in.g) &&
         in.o.sym_numel() == r.sym_numel() &&
         OnKernelDevice(in.o, r, in.k, in.weight, in.v, in.g);
}

at::Tensor Composed(const Call& in) {
  const at::ScalarType type = ComputeType(in.o);
  const auto wide = [&](const at::Tensor& x) { return x.to(type); };
  const at::Tensor seen =
      (wide(in.r) * wide(in.k) * wide(in.weight)).sum(-1, /*keepdim=*/true) *
      wide(in.v);
  const at::Tensor y =
      (wide(in.o) + seen.reshape_symint(in.o.sym_sizes())) * wide(in.g);
  return y.to(in.o.scalar_type()).contiguous();
}

// A call and the tensors that its pointers reach into.
struct Held {
  at::Tensor o, r, k, v, g;
  OptionalTensor weight;
  GateCorrectionInputs inputs;

  explicit Held(const Call& in)
      : o(in.o.contiguous()),
        r(in.r.contiguous()),
        k(in.k.contiguous()),
        v(in.v.contiguous()),
        g(in.g.contiguous()),
        weight(in.weight) {
    inputs.dtype = KernelType(o);
    inputs.heads = r.size(-2);
    inputs.width = r.size(-1);
    const int64_t row = inputs.heads * inputs.width;
    inputs.tokens = row == 0 ? 0 : r.numel() / row;
    inputs.o = o.const_data_ptr();
    inputs.r = r.const_data_ptr();
    inputs.k = k.const_data_ptr();
    inputs.v = v.const_data_ptr();
    inputs.g = g.const_data_ptr();
    inputs.weight = DenseFloats(weight);
  }
};

at::Tensor ForwardCpu(const Call& in) {
  if (!Serves(in)) return Composed(in);
  const Held held(in);
  const at::Tensor out = EmptyDense(in.o.sizes(), in.o.scalar_type());
  TorchExecutor executor(WorkersFor(in.o.numel()));
  GateCorrectionForward(held.inputs, out.data_ptr(), executor);
  return out;
}

Gradients BackwardCpu(const at::Tensor& grad_out, const Call& in) {
  const Held held(in);
  const at::Tensor flow = grad_out.to(in.o.scalar_type()).contiguous();
  const auto like = [&](const at::Tensor& x) {
    return EmptyDense(x.sizes(), in.o.scalar_type());
  };
  const at::Tensor o = like(in.o), r = like(in.r), k = like(in.k),
                   v = like(in.v), g = like(in.g);
  const at::Tensor weight = EmptyDense(in.weight.sizes());
  GateCorrectionGradients grad;
  grad.grad_out = flow.const_data_ptr();
  grad.o = o.data_ptr();
  grad.r = r.data_ptr();
  grad.k = k.data_ptr();
  grad.v = v.data_ptr();
  grad.g = g.data_ptr();
  grad.weight = weight.data_ptr<float>();
  TorchExecutor executor(WorkersFor(in.o.numel()));
  const Workspace workspace(GateCorrectionGradientBytes(held.inputs));
  GateCorrectionBackward(held.inputs, grad, executor, workspace.data());
  return {o, r, k, weight.to(in.weight.scalar_type()), v, g};
}

Gradients BackwardMeta(const at::Tensor&, const Call& in) {
  const auto like = [](const at::Tensor& x) {
    return at::empty_symint(x.sym_sizes(), x.options());
  };
  return {like(in.o),      like(in.r), like(in.k),
          like(in.weight), like(in.v), like(in.g)};
}

at::Tensor Dispatch(const Call& in) {
  static const auto op = FindOp<Signature>("tarn::gate_correction");
  return op.call(in.o, in.r, in.k, in.weight, in.v, in.g);
}

struct CorrectionFunction
    : public torch::autograd::Function<CorrectionFunction> {
  static constexpr bool is_traceable = true;

  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& o,
                            const at::Tensor& r, const at::Tensor& k,
                            const at::Tensor& weight, const at::Tensor& v,
                            const at::Tensor& g) {
    at::AutoDispatchBelowADInplaceOrView guard;
    ctx->save_for_backward({o, r, k, weight, v, g});
    return Dispatch({o, r, k, weight, v, g});
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list s = ctx->get_saved_variables();
    if (at::GradMode::is_enabled()) {  // the gradient may be differentiated
      return ComposedGradients(s, grads, [&](const variable_list& x) {
        return variable_list{Composed({x[0], x[1], x[2], x[3], x[4], x[5]})};
      });
    }
    static const auto op =
        FindGradientOp<BackwardSignature>("tarn::gate_correction_backward");
    const auto [o, r, k, weight, v, g] =
        op.call(grads[0], s[0], s[1], s[2], s[3], s[4], s[5]);
    return {o, r, k, weight, v, g};
  }
};

at::Tensor ForwardAutograd(const Call& in) {
  if (!Serves(in)) return Composed(in);
  if (!WantsGradient(in.o, in.r, in.k, in.weight, in.v, in.g)) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return Dispatch(in);
  }
  return CorrectionFunction::apply(in.o, in.r, in.k, in.weight, in.v, in.g);
}

template <at::Tensor (*kForward)(const Call&)>
at::Tensor Flat(const at::Tensor& o, const at::Tensor& r, const at::Tensor& k,
                const at::Tensor& weight, const at::Tensor& v,
                const at::Tensor& g) {
  return WithTorchErrors([&] { return kForward({o, r, k, weight, v, g}); });
}

template <Gradients (*kBackward)(const at::Tensor&, const Call&)>
Gradients FlatBackward(const at::Tensor& grad_out, const at::Tensor& o,
                       const at::Tensor& r, const at::Tensor& k,
                       const at::Tensor& weight, const at::Tensor& v,
                       const at::Tensor& g) {
  return WithTorchErrors([&] {
    return kBackward(grad_out, {o, r, k, weight, v, g});
  });
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def(
      "gate_correction(Tensor o, Tensor r, Tensor k, Tensor weight, Tensor v, "
      "Tensor g) -> Tensor");
  m.def(
      "gate_correction_backward(Tensor grad_out, Tensor o, Tensor r, Tensor k, "
      "Tensor weight, Tensor v, Tensor g) -> (Tensor grad_o, Tensor grad_r, "
      "Tensor grad_k, Tensor grad_weight, Tensor grad_v, Tensor grad_g)");
}
TORCH_LIBRARY_IMPL(tarn, CPU, m) {
  m.impl("gate_correction", TORCH_FN(Flat<&ForwardCpu>));
  m.impl("gate_correction_backward", TORCH_FN(FlatBackward<&BackwardCpu>));
}
TORCH_LIBRARY_IMPL(tarn, Meta, m) {
  m.impl("gate_correction", TORCH_FN(Flat<&Composed>));
  m.impl("gate_correction_backward", TORCH_FN(FlatBackward<&BackwardMeta>));
}
// Devices without kernels, and torch.func.vmap.
TORCH_LIBRARY_IMPL(tarn, CompositeExplicitAutograd, m) {
  m.impl("gate_correction", TORCH_FN(Flat<&Composed>));
}
TORCH_LIBRARY_IMPL(tarn, FuncTorchBatched, m) {
  m.impl("gate_correction", TORCH_FN(Flat<&Composed>));
}
TORCH_LIBRARY_IMPL(tarn, Autograd, m) {
  m.impl("gate_correction", TORCH_FN(Flat<&ForwardAutograd>));
  m.impl("gate_correction_backward",
         torch::autograd::autogradNotImplementedFallback());
}

}  // namespace
}  // namespace gate_correction

at::Tensor GateCorrection(const at::Tensor& o, const at::Tensor& r,
                          const at::Tensor& k, const at::Tensor& weight,
                          const at::Tensor& v, const at::Tensor& g) {
  return gate_correction::Dispatch({o, r, k, weight, v, g});
}

}  // namespace tarn::ops
