// torch.ops.tarn.logistic_mixture_loss: bytes under mixtures of logistics and
// the gradient in their parameters (kernels/logistic_mixture).
#include "kernels/logistic_mixture/logistic_mixture.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/chunk.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/log.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/where.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>

#include "torch_ops/common/executor.h"
#include "torch_ops/common/memory.h"
#include "torch_ops/layers/call.h"

namespace tarn::ops {
namespace logistic_mixture {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Signature = at::Tensor(const at::Tensor&, const at::Tensor&);
using BackwardSignature = at::Tensor(const at::Tensor&, const at::Tensor&,
                                     const at::Tensor&);

constexpr char kOp[] = "logistic_mixture_loss";

void Check(const at::Tensor& params, const at::Tensor& targets) {
  const at::ScalarType dtype = params.scalar_type();
  if (dtype != at::kFloat && dtype != at::kDouble) {
    throw DTypeError(StrCat(kOp, ": params"), "float32 or float64",
                     c10::toString(dtype));
  }
  const at::ScalarType given = targets.scalar_type();
  if (given != at::kByte && given != at::kLong) {
    throw DTypeError(StrCat(kOp, ": targets"), "uint8 or int64",
                     c10::toString(given));
  }
  if (params.dim() < 1 || params.sym_size(-1) < 3 ||
      params.sym_size(-1) % 3 != 0) {
    throw ShapeError(StrCat(kOp, ": params"), "[..., 3 K], K of at least 1",
                     params.dim() < 1
                         ? "a scalar"
                         : StrCat("a last size of ", params.sym_size(-1)));
  }
  // WantLike compares dtypes too: an empty tensor of the right one stands in.
  const at::Tensor like = at::empty({0}, targets.options());
  WantLike(kOp, "targets", targets, like,
           params.sym_sizes().slice(0, params.dim() - 1));
  if (params.device() != targets.device()) {
    throw DeviceError(StrCat(kOp, ": targets"), params.device().str(),
                      targets.device().str());
  }
}

// Dense uint8 [rows]; throws ArgumentError for a value that is no byte.
at::Tensor Bytes(const at::Tensor& targets) {
  if (targets.scalar_type() == at::kByte) return targets.contiguous();
  const at::Tensor dense = targets.contiguous();
  const int64_t* values = dense.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < dense.numel(); ++i) {
    if (values[i] >= 0 && values[i] <= 255) continue;
    throw ArgumentError(StrCat(kOp, ": targets"), "0 to 255",
                        StrCat(values[i]));
  }
  return dense.to(at::kByte);
}

// The kernel's formula, differentiable to any order.
at::Tensor Composed(const at::Tensor& params, const at::Tensor& targets) {
  if (HoldsData(targets)) Bytes(targets);
  const double half = 1.0 / 255;
  // [..., 1] against the components' [..., K].
  const at::Tensor y =
      (targets.to(params.scalar_type()) * (2.0 / 255) - 1).unsqueeze(-1);
  const std::vector<at::Tensor> parts = at::chunk(params, 3, -1);
  const at::Tensor t = at::clamp_min(parts[2], -7);
  const at::Tensor inverse = at::exp(-t);
  const at::Tensor centered = y - parts[1];
  const at::Tensor above = at::log_sigmoid((centered + half) * inverse);
  const at::Tensor below = at::log_sigmoid((half - centered) * inverse);
  // Where nothing is left of the width, the density below is what counts.
  const at::Tensor width = at::clamp_min(2 * half * inverse, 1e-30);
  const at::Tensor inside = above + below + at::log(-at::expm1(-width));
  const at::Tensor middle = centered * inverse;
  const at::Tensor density =
      at::log_sigmoid(middle) + at::log_sigmoid(-middle) - t - std::log(127.5);
  const at::Tensor log_p =
      at::where(y < -0.999, above,
                at::where(y > 0.999, below,
                          at::where(inside > std::log(1e-5), inside, density)));
  return at::logsumexp(parts[0], {-1}) - at::logsumexp(parts[0] + log_p, {-1});
}

// Runs the kernel; the tensors must be dense.
void Run(const at::Tensor& params, const at::Tensor& bytes,
         const float* weights, float* losses, float* gradients) {
  LogisticMixtureArgs args;
  args.rows = bytes.numel();
  args.n_mixtures = params.size(-1) / 3;
  args.params = params.const_data_ptr<float>();
  args.targets = bytes.const_data_ptr<uint8_t>();
  args.weights = weights;
  args.losses = losses;
  args.gradients = gradients;
  TorchExecutor executor;
  tarn::LogisticMixtureLoss(args, executor);
}

at::Tensor ForwardComposed(const at::Tensor& params,
                           const at::Tensor& targets) {
  return WithTorchErrors([&] {
    Check(params, targets);
    return Composed(params, targets);
  });
}

at::Tensor ForwardCpu(const at::Tensor& params, const at::Tensor& targets) {
  return WithTorchErrors([&] {
    Check(params, targets);
    if (!KernelServes(params)) return Composed(params, targets);
    const at::Tensor losses = EmptyDense(targets.sizes());
    Run(params.contiguous(), Bytes(targets), nullptr, losses.data_ptr<float>(),
        nullptr);
    return losses;
  });
}

at::Tensor BackwardCpu(const at::Tensor& grad_losses, const at::Tensor& params,
                       const at::Tensor& targets) {
  return WithTorchErrors([&] {
    Check(params, targets);
    if (params.scalar_type() != at::kFloat) {
      throw DTypeError("logistic_mixture_loss_backward: params", "float32",
                       c10::toString(params.scalar_type()));
    }
    WantLike(kOp, "grad_losses", grad_losses, params, targets.sym_sizes());
    const at::Tensor weights = grad_losses.contiguous();
    const at::Tensor gradients = EmptyDense(params.sizes());
    Run(params.contiguous(), Bytes(targets), weights.const_data_ptr<float>(),
        nullptr, gradients.data_ptr<float>());
    return gradients;
  });
}

at::Tensor ForwardMeta(const at::Tensor& params, const at::Tensor& targets) {
  return WithTorchErrors([&] {
    Check(params, targets);
    return at::empty_symint(targets.sym_sizes(), params.options());
  });
}

at::Tensor BackwardMeta(const at::Tensor&, const at::Tensor& params,
                        const at::Tensor&) {
  return at::empty_symint(params.sym_sizes(), params.options());
}

at::Tensor Call(const at::Tensor& params, const at::Tensor& targets) {
  static const auto handle = FindOp<Signature>("tarn::logistic_mixture_loss");
  return handle.call(params, targets);
}

// Nothing but the operands is kept: the gradient takes the loss's own pass over
// them, which costs less than writing and reading what that pass knew.
struct LossFunction : public torch::autograd::Function<LossFunction> {
  static constexpr bool is_traceable = true;

  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& params,
                            const at::Tensor& targets) {
    at::AutoDispatchBelowADInplaceOrView guard;
    ctx->save_for_backward({params, targets});
    ctx->set_materialize_grads(false);
    return Call(params, targets);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    if (!grads[0].defined()) return variable_list(2);
    const variable_list saved = ctx->get_saved_variables();
    if (at::GradMode::is_enabled()) {  // the gradient may be differentiated
      variable_list found =
          ComposedGradients({saved[0]}, grads, [&](const variable_list& in) {
            return variable_list{Composed(in[0], saved[1])};
          });
      found.resize(2);
      return found;
    }
    static const auto handle = FindGradientOp<BackwardSignature>(
        "tarn::logistic_mixture_loss_backward");
    return {handle.call(grads[0], saved[0], saved[1]), at::Tensor()};
  }
};

at::Tensor ForwardAutograd(const at::Tensor& params,
                           const at::Tensor& targets) {
  if (!KernelServes(params)) return ForwardComposed(params, targets);
  WithTorchErrors([&] { Check(params, targets); });
  if (!WantsGradient(params)) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return Call(params, targets);
  }
  return LossFunction::apply(params, targets);
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def("logistic_mixture_loss(Tensor params, Tensor targets) -> Tensor");
  m.def(
      "logistic_mixture_loss_backward(Tensor grad_losses, Tensor params, "
      "Tensor targets) -> Tensor");
}
TORCH_LIBRARY_IMPL(tarn, CPU, m) {
  m.impl("logistic_mixture_loss", &ForwardCpu);
  m.impl("logistic_mixture_loss_backward", &BackwardCpu);
}
TORCH_LIBRARY_IMPL(tarn, Meta, m) {
  m.impl("logistic_mixture_loss", &ForwardMeta);
  m.impl("logistic_mixture_loss_backward", &BackwardMeta);
}
// Devices without kernels, and torch.func.vmap.
TORCH_LIBRARY_IMPL(tarn, CompositeExplicitAutograd, m) {
  m.impl("logistic_mixture_loss", &ForwardComposed);
}
TORCH_LIBRARY_IMPL(tarn, FuncTorchBatched, m) {
  m.impl("logistic_mixture_loss", &ForwardComposed);
}
TORCH_LIBRARY_IMPL(tarn, Autograd, m) {
  m.impl("logistic_mixture_loss", &ForwardAutograd);
}

}  // namespace
}  // namespace logistic_mixture

at::Tensor LogisticMixtureLoss(const at::Tensor& params,
                               const at::Tensor& targets) {
  return logistic_mixture::Call(params, targets);
}

}  // namespace tarn::ops
