// torch.ops.tarn.decay_gate: the logarithms of decay factors
// (kernels/decay_gate has the forms by name).
#include "kernels/decay_gate/decay_gate.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/where.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <cmath>
#include <limits>

#include "torch_ops/common/executor.h"
#include "torch_ops/common/memory.h"
#include "torch_ops/common/tensors.h"
#include "torch_ops/common/wants.h"
#include "torch_ops/rows/row_ops.h"
#include "torch_ops/rows/rows.h"

namespace tarn::ops {
namespace decay_gate {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Two = std::tuple<at::Tensor, at::Tensor>;
// Gradients of x, A_log and bias; [0] for what is absent.
using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using Signature = Two(const at::Tensor&, const OptionalTensor&,
                      const OptionalTensor&, c10::string_view, double, bool,
                      double, std::optional<double>);
using BackwardSignature = Gradients(const OptionalTensor&,
                                    const OptionalTensor&, const at::Tensor&,
                                    const OptionalTensor&,
                                    const OptionalTensor&, c10::string_view,
                                    double, double, std::optional<double>);

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

struct Call {
  at::Tensor x;
  OptionalTensor A_log, bias;
  GateForm form;
  std::string name;
  double scale;
  bool second;
  double least, most;
};

GateForm FormOf(c10::string_view name) {
  std::string wanted;
  for (const GateFormName& row : kGateFormNames) {
    if (name == row.name) return row.form;
    wanted += StrCat(wanted.empty() ? "" : ", ", row.name);
  }
  throw ArgumentError("decay_gate: form", StrCat("one of ", wanted),
                      std::string(name));
}

Call CallOf(const at::Tensor& x, const OptionalTensor& A_log,
            const OptionalTensor& bias, c10::string_view name, double scale,
            bool second, double least, double most) {
  const GateForm form = FormOf(name);
  const Wants wants("decay_gate", x);
  wants.Floating("x", x);
  if (x.dim() < 1) {
    throw ShapeError("decay_gate: x", "[..., entries]", "[]");
  }
  const c10::SymInt entries = x.sym_size(-1);
  const auto named = [&](const char* argument) {
    return StrCat("decay_gate: ", argument, " (", std::string(name), ")");
  };
  if (A_log.has_value()) {
    if (!TakesRates(form)) {
      throw ArgumentError(named("A_log"), "None", "a tensor");
    }
    wants.Floating("A_log", *A_log);
    wants.Device("A_log", *A_log);
    if (A_log->dim() != 1 || A_log->sym_size(0) == 0 ||
        entries % A_log->sym_size(0) != 0) {
      throw ShapeError("decay_gate: A_log",
                       StrCat("[heads], a divisor of ", entries),
                       SizesText(A_log->sym_sizes()));
    }
  }
  if (bias.has_value()) {
    wants.Floating("bias", *bias);
    wants.Device("bias", *bias);
    wants.Sizes("bias", *bias, {entries});
  } else if (form == GateForm::kBounded) {
    throw ArgumentError(named("bias"), "a tensor", "None");
  }
  if (second && !HasSecond(form)) {
    throw ArgumentError(named("second"), "False", "True");
  }
  const bool limited = least > 0 || most < kNoLimit;
  if (limited && form != GateForm::kSoftplus) {
    throw ArgumentError(named("least, most"), "no limits",
                        StrCat(least, ", ", most));
  }
  if (!(least >= 0 && least <= most)) {
    throw ArgumentError(named("least"),
                        StrCat("a number from 0 to most = ", most),
                        StrCat(least));
  }
  return {x, A_log, bias, form, std::string(name), scale, second, least, most};
}

bool Serves(const Call& in) {
  return IsKernelType(in.x) && OnKernelDevice(in.x, in.A_log, in.bias);
}

at::Tensor Absent(const at::Tensor& x) {
  return at::empty({0}, x.options().dtype(ComputeType(x)));
}

// log(l + (1 - l) sigma(x)) from logarithms, as sigma(x) may underflow where
// l = 0; there log sigma(x) and what makes its slope by l.
at::Tensor BoundedGates(const at::Tensor& x, const at::Tensor& l) {
  const at::Tensor none = l == 0;
  const at::Tensor some = at::where(none, at::ones_like(l) * 0.5, l);
  const at::Tensor sigma = at::log_sigmoid(x);
  return at::where(none, sigma + at::log1p(l * at::exp(-x.clamp_min(-80))),
                   at::logaddexp(some.log(), at::log1p(-some) + sigma));
}

Two Composed(const Call& in) {
  const at::ScalarType type = ComputeType(in.x);
  const at::Tensor x = in.x.to(type);
  const at::Tensor bias =
      in.bias.has_value() ? in.bias->to(type) : at::Tensor();
  // x times the rate of its head.
  const auto rated = [&](const at::Tensor& numbers) {
    if (!in.A_log.has_value()) return numbers;
    const c10::SymInt heads = in.A_log->sym_size(0);
    return (numbers.unflatten_symint(-1, {heads, in.x.sym_size(-1) / heads}) *
            at::exp(in.A_log->to(type)).unsqueeze(-1))
        .flatten(-2);
  };
  at::Tensor gates, second;
  if (in.form == GateForm::kBounded) {
    gates = BoundedGates(x, bias);
    if (in.second) {
      second = ((1 - bias) * at::sigmoid(-x)).to(in.x.scalar_type());
    }
  } else {
    const at::Tensor u = bias.defined() ? x + bias : x;
    switch (in.form) {
      case GateForm::kSoftplus:
        second = -at::log_sigmoid(-u);  // softplus, of any size
        if (in.least > 0) second = second.clamp_min(in.least);
        if (std::isfinite(in.most)) second = second.clamp_max(in.most);
        gates = -rated(second);
        break;
      case GateForm::kLogSigmoid:
        gates = at::log_sigmoid(u) * in.scale;
        break;
      case GateForm::kExponential:
        gates = -at::exp(u);
        break;
      default:
        gates = at::sigmoid(rated(u)) * -in.scale;
    }
  }
  return {gates.contiguous(), in.second ? second.contiguous() : Absent(in.x)};
}

// A call and the tensors that its pointers reach into.
struct Held {
  at::Tensor x, rates;
  OptionalTensor bias;
  DecayGateCall call;

  explicit Held(const Call& in) : x(in.x), bias(in.bias) {
    call.gate.form = in.form;
    call.gate.count = x.size(-1);
    call.gate.scale = static_cast<float>(in.scale);
    call.gate.least = static_cast<float>(in.least);
    call.gate.most = static_cast<float>(in.most);
    call.gate.bias = DenseFloats(bias);
    call.dtype = KernelType(x);
    call.rows = call.gate.count == 0 ? 0 : x.numel() / call.gate.count;
    call.stride = RowStride(x);
    call.x = x.const_data_ptr();
    if (in.A_log.has_value()) {
      rates = in.A_log->to(at::kFloat).exp().contiguous();
      const int64_t width = call.gate.count / in.A_log->size(0);
      if (width > 1) rates = rates.repeat_interleave(width);
      call.gate.rates = rates.const_data_ptr<float>();
    }
  }
};

at::ScalarType SecondType(const Call& in) {
  return in.form == GateForm::kBounded ? in.x.scalar_type() : at::kFloat;
}

Two ForwardCpu(const Call& in) {
  if (!Serves(in)) return Composed(in);
  const Held held(in);
  const at::Tensor gates = EmptyDense(in.x.sizes());
  const at::Tensor second =
      in.second ? EmptyDense(in.x.sizes(), SecondType(in)) : Absent(in.x);
  TorchExecutor executor(WorkersFor(in.x.numel()));
  DecayGateForward(held.call, gates.data_ptr<float>(),
                   in.second ? second.data_ptr() : nullptr, executor);
  return {gates, second};
}

Gradients BackwardCpu(const OptionalTensor& grad_gates,
                      const OptionalTensor& grad_second, const Call& in) {
  const Held held(in);
  const auto none = [] { return at::empty({0}, at::kFloat); };
  DecayGateGradients g;
  OptionalTensor by_gates = grad_gates;
  g.grad_gates = DenseFloats(by_gates);
  at::Tensor by_second;
  if (grad_second.has_value() && grad_second->numel() == in.x.numel()) {
    by_second = grad_second->to(SecondType(in)).contiguous();
    g.grad_second = by_second.const_data_ptr();
  }
  const at::Tensor x = EmptyDense(in.x.sizes(), in.x.scalar_type());
  g.grad_x = x.data_ptr();
  at::Tensor A_log = none(), bias = none();
  if (in.A_log.has_value()) {
    A_log = EmptyDense({held.call.gate.count});
    g.grad_log_rates = A_log.data_ptr<float>();
  }
  if (in.bias.has_value()) {
    bias = EmptyDense({held.call.gate.count});
    g.grad_bias = bias.data_ptr<float>();
  }
  TorchExecutor executor(WorkersFor(in.x.numel()));
  const Workspace workspace(DecayGateGradientBytes(held.call));
  DecayGateBackward(held.call, g, executor, workspace.data());
  if (in.A_log.has_value()) {
    const int64_t heads = in.A_log->size(0);
    if (heads < A_log.size(0)) A_log = A_log.view({heads, -1}).sum(1);
    A_log = A_log.to(in.A_log->scalar_type());
  }
  if (in.bias.has_value()) bias = bias.to(in.bias->scalar_type());
  return {x, A_log, bias};
}

Gradients BackwardMeta(const OptionalTensor&, const OptionalTensor&,
                       const Call& in) {
  const auto like = [&](const OptionalTensor& x) {
    return x.has_value() ? at::empty_symint(x->sym_sizes(), x->options())
                         : at::empty({0}, in.x.options().dtype(at::kFloat));
  };
  return {like(in.x), like(in.A_log), like(in.bias)};
}

Two Dispatch(const Call& in) {
  static const auto op = FindOp<Signature>("tarn::decay_gate");
  return op.call(in.x, in.A_log, in.bias, in.name, in.scale, in.second,
                 in.least, in.most);
}

struct GateFunction : public torch::autograd::Function<GateFunction> {
  static constexpr bool is_traceable = true;

  static variable_list forward(AutogradContext* ctx, const at::Tensor&,
                               const OptionalTensor&, const OptionalTensor&,
                               const Call& in) {
    at::AutoDispatchBelowADInplaceOrView guard;
    ctx->save_for_backward({in.x, UndefinedOr(in.A_log), UndefinedOr(in.bias)});
    ctx->saved_data["form"] = in.name;
    ctx->saved_data["scale"] = in.scale;
    ctx->saved_data["second"] = in.second;
    ctx->saved_data["least"] = in.least;
    ctx->saved_data["most"] = in.most;
    ctx->set_materialize_grads(false);
    const auto [gates, second] = Dispatch(in);
    if (!in.second) ctx->mark_non_differentiable({second});
    return {gates, second};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const std::string name = ctx->saved_data["form"].toStringRef();
    const double scale = ctx->saved_data["scale"].toDouble();
    const bool second = ctx->saved_data["second"].toBool();
    const double least = ctx->saved_data["least"].toDouble();
    const double most = ctx->saved_data["most"].toDouble();
    if (at::GradMode::is_enabled()) {  // the gradient may be differentiated
      variable_list found =
          ComposedGradients(saved, grads, [&](const variable_list& x) {
            const auto [gates, other] =
                Composed(CallOf(x[0], NoneOr(x[1]), NoneOr(x[2]), name, scale,
                                second, least, most));
            return variable_list{gates, other};
          });
      found.resize(4);
      return found;
    }
    static const auto op =
        FindGradientOp<BackwardSignature>("tarn::decay_gate_backward");
    const auto [x, A_log, bias] =
        op.call(NoneOr(grads[0]), NoneOr(grads[1]), saved[0], NoneOr(saved[1]),
                NoneOr(saved[2]), name, scale, least, most);
    return {x, saved[1].defined() ? A_log : at::Tensor(),
            saved[2].defined() ? bias : at::Tensor(), at::Tensor()};
  }
};

Two ForwardAutograd(const Call& in) {
  if (!Serves(in)) return Composed(in);
  if (!WantsGradient(in.x, in.A_log, in.bias)) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return Dispatch(in);
  }
  const variable_list found = GateFunction::apply(in.x, in.A_log, in.bias, in);
  return {found[0], found[1]};
}

template <Two (*kForward)(const Call&)>
Two Flat(const at::Tensor& x, const OptionalTensor& A_log,
         const OptionalTensor& bias, c10::string_view form, double scale,
         bool second, double least, std::optional<double> most) {
  return WithTorchErrors([&] {
    return kForward(CallOf(x, A_log, bias, form, scale, second, least,
                           most.value_or(kNoLimit)));
  });
}

template <Gradients (*kBackward)(const OptionalTensor&, const OptionalTensor&,
                                 const Call&)>
Gradients FlatBackward(const OptionalTensor& grad_gates,
                       const OptionalTensor& grad_second, const at::Tensor& x,
                       const OptionalTensor& A_log, const OptionalTensor& bias,
                       c10::string_view form, double scale, double least,
                       std::optional<double> most) {
  return WithTorchErrors([&] {
    return kBackward(grad_gates, grad_second,
                     CallOf(x, A_log, bias, form, scale, false, least,
                            most.value_or(kNoLimit)));
  });
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def(
      "decay_gate(Tensor x, Tensor? A_log, Tensor? bias, str form, "
      "float scale=1.0, bool second=False, float least=0.0, float? most=None) "
      "-> (Tensor gates, Tensor second)");
  m.def(
      "decay_gate_backward(Tensor? grad_gates, Tensor? grad_second, Tensor x, "
      "Tensor? A_log, Tensor? bias, str form, float scale, float least=0.0, "
      "float? most=None) -> "
      "(Tensor grad_x, Tensor grad_A_log, Tensor grad_bias)");
}
TORCH_LIBRARY_IMPL(tarn, CPU, m) {
  m.impl("decay_gate", TORCH_FN(Flat<&ForwardCpu>));
  m.impl("decay_gate_backward", TORCH_FN(FlatBackward<&BackwardCpu>));
}
TORCH_LIBRARY_IMPL(tarn, Meta, m) {
  m.impl("decay_gate", TORCH_FN(Flat<&Composed>));
  m.impl("decay_gate_backward", TORCH_FN(FlatBackward<&BackwardMeta>));
}
// Devices without kernels, and torch.func.vmap.
TORCH_LIBRARY_IMPL(tarn, CompositeExplicitAutograd, m) {
  m.impl("decay_gate", TORCH_FN(Flat<&Composed>));
}
TORCH_LIBRARY_IMPL(tarn, FuncTorchBatched, m) {
  m.impl("decay_gate", TORCH_FN(Flat<&Composed>));
}
TORCH_LIBRARY_IMPL(tarn, Autograd, m) {
  m.impl("decay_gate", TORCH_FN(Flat<&ForwardAutograd>));
  m.impl("decay_gate_backward",
         torch::autograd::autogradNotImplementedFallback());
}

}  // namespace
}  // namespace decay_gate

DecayGateResult DecayGate(const DecayGateArguments& a) {
  static const auto op = FindOp<decay_gate::Signature>("tarn::decay_gate");
  auto [gates, second] =
      op.call(a.x, a.A_log, a.bias, a.form, a.scale, a.second, a.least, a.most);
  return {gates, second};
}

}  // namespace tarn::ops
