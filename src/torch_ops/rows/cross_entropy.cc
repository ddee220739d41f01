// torch.ops.tarn.cross_entropy: the loss of each row of logits
// (kernels/cross_entropy), of which the gradient keeps two numbers.
#include "kernels/cross_entropy/cross_entropy.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "torch_ops/common/executor.h"
#include "torch_ops/common/memory.h"
#include "torch_ops/common/tensors.h"
#include "torch_ops/common/wants.h"
#include "torch_ops/rows/rows.h"

namespace tarn::ops {
namespace cross_entropy {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
// losses [N], their squares [N], moments [N, 2] ([0] of the composed form).
using Losses = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using Signature = Losses(const at::Tensor&, const at::Tensor&, double, double,
                         double, double, int64_t);
using BackwardSignature = at::Tensor(const at::Tensor&, const at::Tensor&,
                                     const at::Tensor&, const at::Tensor&,
                                     double, double, double, double, int64_t);

struct Call {
  at::Tensor logits;  // [N, V]
  at::Tensor target;  // [N] int64
  CrossEntropyOptions options;
};

void Check(const Call& in) {
  const Wants want("cross_entropy", in.logits);
  want.Floating("logits", in.logits);
  if (in.logits.dim() != 2 || in.logits.sym_size(1) < 1) {
    throw ShapeError(want.Argument("logits"), "[tokens, classes]",
                     SizesText(in.logits.sym_sizes()));
  }
  want.Device("target", in.target);
  want.DType("target", in.target, at::kLong);
  want.Sizes("target", in.target, {in.logits.sym_size(0)});
}

bool Serves(const Call& in) {
  return IsKernelType(in.logits) && OnKernelDevice(in.logits);
}

at::Tensor Absent(const at::Tensor& like) {
  return at::empty({0}, like.options().dtype(at::kFloat));
}

Losses Composed(const Call& in) {
  Check(in);
  const CrossEntropyOptions& o = in.options;
  at::Tensor z = Wide(in.logits) * o.scale;
  if (o.cap != 0) z = o.cap * at::tanh(z / o.cap);
  const at::Tensor losses = at::cross_entropy_loss_symint(
      z, in.target, {}, at::Reduction::None, o.ignored, o.smoothing);
  if (o.square_scale == 0) {
    return {losses, at::zeros_like(losses), Absent(z)};
  }
  const at::Tensor lse = at::logsumexp(z, {-1});
  const at::Tensor squares =
      at::where(in.target == o.ignored, Zero(z), lse * lse * o.square_scale);
  return {losses + squares, squares.detach(), Absent(z)};
}

// A call and the tensors that its pointers reach into.
struct Held {
  at::Tensor logits, target;
  CrossEntropyInputs inputs;

  explicit Held(const Call& in)
      : logits(in.logits), target(in.target.contiguous()) {
    inputs.stride = RowStride(logits);
    inputs.logits = logits.const_data_ptr();
    inputs.dtype = KernelType(logits);
    inputs.rows = logits.size(0);
    inputs.classes = logits.size(1);
    inputs.targets = target.const_data_ptr<int64_t>();
  }
};

Losses ForwardCpu(const Call& in) {
  if (!Serves(in)) return Composed(in);
  Check(in);
  const Held held(in);
  const int64_t rows = held.inputs.rows;
  const at::Tensor losses = EmptyDense({rows}), squares = EmptyDense({rows});
  const at::Tensor moments = EmptyDense({rows, 2});
  TorchExecutor executor(WorkersFor(in.logits.numel()));
  CrossEntropyForward(in.options, held.inputs, losses.data_ptr<float>(),
                      squares.data_ptr<float>(), moments.data_ptr<float>(),
                      executor);
  return {losses, squares, moments};
}

Losses ForwardMeta(const Call& in) {
  if (!IsKernelType(in.logits)) return Composed(in);
  Check(in);
  const c10::SymInt rows = in.logits.sym_size(0);
  const auto floats = in.logits.options().dtype(at::kFloat);
  return {at::empty_symint({rows}, floats), at::empty_symint({rows}, floats),
          at::empty_symint({rows, 2}, floats)};
}

at::Tensor BackwardCpu(const at::Tensor& grad, const Call& in,
                       const at::Tensor& moments) {
  Check(in);
  const Held held(in);
  const at::Tensor flow = grad.to(at::kFloat).contiguous();
  const at::Tensor dense = moments.contiguous();
  const at::Tensor out = EmptyDense(in.logits.sizes(), in.logits.scalar_type());
  TorchExecutor executor(WorkersFor(in.logits.numel()));
  CrossEntropyBackward(in.options, held.inputs, dense.const_data_ptr<float>(),
                       flow.const_data_ptr<float>(), out.data_ptr(), executor);
  return out;
}

at::Tensor BackwardMeta(const at::Tensor&, const Call& in, const at::Tensor&) {
  return at::empty_symint(in.logits.sym_sizes(), in.logits.options());
}

Losses Dispatch(const Call& in) {
  static const auto op = FindOp<Signature>("tarn::cross_entropy");
  const CrossEntropyOptions& o = in.options;
  return op.call(in.logits, in.target, o.smoothing, o.scale, o.square_scale,
                 o.cap, o.ignored);
}

struct LossFunction : public torch::autograd::Function<LossFunction> {
  static constexpr bool is_traceable = true;

  static variable_list forward(AutogradContext* ctx, const at::Tensor&,
                               const Call& in) {
    at::AutoDispatchBelowADInplaceOrView guard;
    const auto [losses, squares, moments] = Dispatch(in);
    ctx->save_for_backward({in.logits, in.target, moments});
    ctx->saved_data["numbers"] =
        std::vector<double>{in.options.smoothing, in.options.scale,
                            in.options.square_scale, in.options.cap};
    ctx->saved_data["ignored"] = in.options.ignored;
    ctx->mark_non_differentiable({squares, moments});
    ctx->set_materialize_grads(false);
    return {losses, squares, moments};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    if (!grads[0].defined()) return variable_list(2);
    const variable_list saved = ctx->get_saved_variables();
    const std::vector<double> numbers =
        ctx->saved_data["numbers"].toDoubleVector();
    Call in = {saved[0],
               saved[1],
               {numbers[0], numbers[1], numbers[2], numbers[3],
                ctx->saved_data["ignored"].toInt()}};
    if (at::GradMode::is_enabled()) {  // the gradient may be differentiated
      variable_list found = ComposedGradients(
          {saved[0]}, {grads[0]}, [&](const variable_list& x) {
            in.logits = x[0];
            return variable_list{std::get<0>(Composed(in))};
          });
      found.resize(2);
      return found;
    }
    static const auto op =
        FindGradientOp<BackwardSignature>("tarn::cross_entropy_backward");
    return {op.call(grads[0], in.logits, in.target, saved[2], numbers[0],
                    numbers[1], numbers[2], numbers[3], in.options.ignored),
            at::Tensor()};
  }
};

Losses ForwardAutograd(const Call& in) {
  if (!Serves(in)) return Composed(in);
  Check(in);
  if (!WantsGradient(in.logits)) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return Dispatch(in);
  }
  const variable_list found = LossFunction::apply(in.logits, in);
  return {found[0], found[1], found[2]};
}

template <Losses (*kForward)(const Call&)>
Losses Flat(const at::Tensor& logits, const at::Tensor& target,
            double smoothing, double scale, double square_scale, double cap,
            int64_t ignored) {
  return WithTorchErrors([&] {
    return kForward(
        {logits, target, {smoothing, scale, square_scale, cap, ignored}});
  });
}

template <at::Tensor (*kBackward)(const at::Tensor&, const Call&,
                                  const at::Tensor&)>
at::Tensor FlatBackward(const at::Tensor& grad, const at::Tensor& logits,
                        const at::Tensor& target, const at::Tensor& moments,
                        double smoothing, double scale, double square_scale,
                        double cap, int64_t ignored) {
  return WithTorchErrors([&] {
    return kBackward(
        grad, {logits, target, {smoothing, scale, square_scale, cap, ignored}},
        moments);
  });
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def(
      "cross_entropy(Tensor logits, Tensor target, float label_smoothing=0.0, "
      "float logit_scale=1.0, float lse_square_scale=0.0, "
      "float logit_softcapping=0.0, int ignore_index=-100) -> "
      "(Tensor losses, Tensor squares, Tensor moments)");
  m.def(
      "cross_entropy_backward(Tensor grad, Tensor logits, Tensor target, "
      "Tensor moments, float label_smoothing, float logit_scale, "
      "float lse_square_scale, float logit_softcapping, int ignore_index) -> "
      "Tensor");
}
TORCH_LIBRARY_IMPL(tarn, CPU, m) {
  m.impl("cross_entropy", TORCH_FN(Flat<&ForwardCpu>));
  m.impl("cross_entropy_backward", TORCH_FN(FlatBackward<&BackwardCpu>));
}
TORCH_LIBRARY_IMPL(tarn, Meta, m) {
  m.impl("cross_entropy", TORCH_FN(Flat<&ForwardMeta>));
  m.impl("cross_entropy_backward", TORCH_FN(FlatBackward<&BackwardMeta>));
}
// Devices without kernels, and torch.func.vmap.
TORCH_LIBRARY_IMPL(tarn, CompositeExplicitAutograd, m) {
  m.impl("cross_entropy", TORCH_FN(Flat<&Composed>));
}
TORCH_LIBRARY_IMPL(tarn, FuncTorchBatched, m) {
  m.impl("cross_entropy", TORCH_FN(Flat<&Composed>));
}
TORCH_LIBRARY_IMPL(tarn, Autograd, m) {
  m.impl("cross_entropy", TORCH_FN(Flat<&ForwardAutograd>));
  m.impl("cross_entropy_backward",
         torch::autograd::autogradNotImplementedFallback());
}

}  // namespace
}  // namespace cross_entropy
}  // namespace tarn::ops
