// torch.ops.tarn.mlstm_read: what mLSTM's recurrence read over its normaliser
// (kernels/mlstm).
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <tuple>
#include <vector>

#include "kernels/mlstm/mlstm.h"
#include "torch_ops/cells/cells.h"
#include "torch_ops/common/executor.h"
#include "torch_ops/common/memory.h"
#include "torch_ops/common/tensors.h"
#include "torch_ops/common/wants.h"
#include "torch_ops/layers/call.h"

namespace tarn::ops {
namespace mlstm_read {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using T = at::Tensor;
using Signature = T(const T&, const T&, double);
using Two = std::tuple<T, T>;  // of read and of maxima
using BackwardSignature = Two(const T&, const T&, const T&, double);

void Check(const T& read, const T& maxima) {
  const Wants wants("mlstm_read", read);
  wants.Floating("read", read);
  const auto sizes = read.sym_sizes();
  if (sizes.empty() || sizes.back() < 1) {
    throw ShapeError(wants.Argument("read"), "[..., width + 1]",
                     SizesText(sizes));
  }
  wants.Device("maxima", maxima);
  wants.DType("maxima", maxima, ComputeType(read));
  wants.Sizes("maxima", maxima, sizes.slice(0, sizes.size() - 1).vec());
}

T Composed(const T& read, const T& maxima, double eps) {
  const T wide = Wide(read);
  const c10::SymInt width = wide.sym_size(-1) - 1;
  const T normal = wide.narrow_symint(-1, width, 1);
  const T least = (-maxima).exp().unsqueeze(-1);
  return wide.narrow_symint(-1, 0, width) /
         (at::maximum(normal.abs(), least) + eps);
}

// A call and the tensors that its pointers reach into.
struct Held {
  T read, maxima;
  MlstmReadCall call;

  Held(const T& given, const T& m, double eps)
      : read(given.contiguous()), maxima(m.contiguous()) {
    call.rows = maxima.numel();
    call.width = read.size(-1) - 1;
    call.read = read.const_data_ptr<float>();
    call.maxima = maxima.const_data_ptr<float>();
    call.eps = static_cast<float>(eps);
  }
};

T ForwardCpu(const T& read, const T& maxima, double eps) {
  if (!KernelServes(read, maxima)) return Composed(read, maxima, eps);
  const Held held(read, maxima, eps);
  const T h = EmptyDense(WithLast(read, held.call.width));
  TorchExecutor executor(WorkersFor(read.numel()));
  MlstmReadForward(held.call, h.data_ptr<float>(), executor);
  return h;
}

T ForwardMeta(const T& read, const T&, double) {
  return at::empty_symint(WithLast(read, read.sym_size(-1) - 1),
                          read.options().dtype(ComputeType(read)));
}

Two BackwardCpu(const T& grad_h, const T& read, const T& maxima, double eps) {
  const Held held(read, maxima, eps);
  const T flow = grad_h.to(at::kFloat).contiguous();
  const T grad_read = EmptyDense(read.sizes()),
          grad_maxima = EmptyDense(maxima.sizes());
  TorchExecutor executor(WorkersFor(read.numel()));
  MlstmReadBackward(held.call, flow.const_data_ptr<float>(),
                    grad_read.data_ptr<float>(), grad_maxima.data_ptr<float>(),
                    executor);
  return {grad_read, grad_maxima};
}

Two BackwardMeta(const T&, const T& read, const T& maxima, double) {
  return {at::empty_symint(read.sym_sizes(), read.options()),
          at::empty_symint(maxima.sym_sizes(), maxima.options())};
}

T Dispatch(const T& read, const T& maxima, double eps) {
  static const auto op = FindOp<Signature>("tarn::mlstm_read");
  return op.call(read, maxima, eps);
}

struct MlstmReadFunction : public torch::autograd::Function<MlstmReadFunction> {
  static constexpr bool is_traceable = true;

  static T forward(AutogradContext* ctx, const T& read, const T& maxima,
                   double eps) {
    at::AutoDispatchBelowADInplaceOrView guard;
    ctx->save_for_backward({read, maxima});
    ctx->saved_data["eps"] = eps;
    return Dispatch(read, maxima, eps);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const double eps = ctx->saved_data["eps"].toDouble();
    if (at::GradMode::is_enabled()) {  // the gradient may be differentiated
      variable_list found =
          ComposedGradients(saved, grads, [&](const variable_list& x) {
            return variable_list{Composed(x[0], x[1], eps)};
          });
      found.resize(3);
      return found;
    }
    static const auto op =
        FindGradientOp<BackwardSignature>("tarn::mlstm_read_backward");
    const auto [by_read, by_maxima] =
        op.call(grads[0], saved[0], saved[1], eps);
    return {by_read, by_maxima, T()};
  }
};

T ForwardAutograd(const T& read, const T& maxima, double eps) {
  if (!KernelServes(read, maxima)) return Composed(read, maxima, eps);
  if (!WantsGradient(read, maxima)) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return Dispatch(read, maxima, eps);
  }
  return MlstmReadFunction::apply(read, maxima, eps);
}

template <T (*kForward)(const T&, const T&, double)>
T Flat(const T& read, const T& maxima, double eps) {
  return WithTorchErrors([&] {
    Check(read, maxima);
    return kForward(read, maxima, eps);
  });
}

template <Two (*kBackward)(const T&, const T&, const T&, double)>
Two FlatBackward(const T& grad_h, const T& read, const T& maxima, double eps) {
  return WithTorchErrors([&] {
    Check(read, maxima);
    return kBackward(grad_h, read, maxima, eps);
  });
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def("mlstm_read(Tensor read, Tensor maxima, float eps=1e-06) -> Tensor");
  m.def(
      "mlstm_read_backward(Tensor grad_out, Tensor read, Tensor maxima, "
      "float eps) -> (Tensor read_gradient, Tensor maxima_gradient)");
}
TORCH_LIBRARY_IMPL(tarn, CPU, m) {
  m.impl("mlstm_read", TORCH_FN(Flat<&ForwardCpu>));
  m.impl("mlstm_read_backward", TORCH_FN(FlatBackward<&BackwardCpu>));
}
TORCH_LIBRARY_IMPL(tarn, Meta, m) {
  m.impl("mlstm_read", TORCH_FN(Flat<&ForwardMeta>));
  m.impl("mlstm_read_backward", TORCH_FN(FlatBackward<&BackwardMeta>));
}
// Devices without kernels, and torch.func.vmap.
TORCH_LIBRARY_IMPL(tarn, CompositeExplicitAutograd, m) {
  m.impl("mlstm_read", TORCH_FN(Flat<&Composed>));
}
TORCH_LIBRARY_IMPL(tarn, FuncTorchBatched, m) {
  m.impl("mlstm_read", TORCH_FN(Flat<&Composed>));
}
TORCH_LIBRARY_IMPL(tarn, Autograd, m) {
  m.impl("mlstm_read", TORCH_FN(Flat<&ForwardAutograd>));
  m.impl("mlstm_read_backward",
         torch::autograd::autogradNotImplementedFallback());
}

}  // namespace
}  // namespace mlstm_read

at::Tensor MlstmRead(const at::Tensor& read, const at::Tensor& maxima,
                     double eps) {
  return mlstm_read::Dispatch(read, maxima, eps);
}

}  // namespace tarn::ops
