// torch.ops.tarn.entry_form: kernels/entry_forms has the forms by name. The
// kernel takes x and y of one shape and dtype and a weight of the last axis;
// what else torch can broadcast is composed.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/where.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "kernels/entry_forms/entry_forms.h"
#include "torch_ops/common/executor.h"
#include "torch_ops/common/memory.h"
#include "torch_ops/common/tensors.h"
#include "torch_ops/rows/row_ops.h"
#include "torch_ops/rows/rows.h"

namespace tarn::ops {
namespace entry_form {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
// Gradients of x, y and weight; [0] for what is absent.
using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using Signature = at::Tensor(const at::Tensor&, const OptionalTensor&,
                             const OptionalTensor&, c10::string_view, double);
using BackwardSignature = Gradients(const at::Tensor&, const at::Tensor&,
                                    const OptionalTensor&,
                                    const OptionalTensor&, c10::string_view,
                                    double);

struct Call {
  at::Tensor x;
  OptionalTensor y, weight;
  EntryForm form;
  std::string name;
  double scale;
};

Call CallOf(const at::Tensor& x, const OptionalTensor& y,
            const OptionalTensor& weight, c10::string_view name, double scale) {
  std::string wanted;
  for (const EntryFormName& row : kEntryFormNames) {
    if (name != row.name) {
      wanted += StrCat(wanted.empty() ? "" : ", ", row.name);
      continue;
    }
    if (TakesGated(row.form) != y.has_value()) {
      throw ArgumentError(StrCat("entry_form: y (", row.name, ")"),
                          y.has_value() ? "None" : "a tensor",
                          y.has_value() ? "a tensor" : "None");
    }
    const bool needed = row.form == EntryForm::kMixedGate;
    if (weight.has_value() ? !TakesWeight(row.form) : needed) {
      throw ArgumentError(StrCat("entry_form: weight (", row.name, ")"),
                          needed ? "a tensor" : "None",
                          needed ? "None" : "a tensor");
    }
    return {x, y, weight, row.form, row.name, scale};
  }
  throw ArgumentError("entry_form: form", StrCat("one of ", wanted),
                      std::string(name));
}

bool Serves(const Call& in) {
  const at::Tensor& x = in.x;
  if (!IsKernelType(x) || x.dim() < 1) return false;
  if (!OnKernelDevice(x, in.y, in.weight)) return false;
  if (in.y.has_value() && !IsLike(x, *in.y)) return false;
  return !in.weight.has_value() ||
         (in.weight->is_floating_point() && in.weight->dim() >= 1 &&
          in.weight->dim() <= x.dim() &&
          in.weight->sym_size(-1) == x.sym_size(-1) &&
          in.weight->sym_numel() == x.sym_size(-1));
}

at::Tensor Composed(const Call& in) {
  const at::Tensor x = Wide(in.x);
  const at::ScalarType type = x.scalar_type();
  const at::Tensor y = in.y.has_value() ? in.y->to(type) : at::Tensor();
  const at::Tensor w =
      in.weight.has_value() ? in.weight->to(type) : at::Tensor();
  const auto value = [&] {
    switch (in.form) {
      case EntryForm::kSiluGate:
        return at::silu(x) * y;
      case EntryForm::kSigmoidGate:
        return at::sigmoid(x) * y;
      case EntryForm::kPowerGate: {
        const at::Tensor above = x > 0;
        // No slope of a root or a power at 0 or below.
        const at::Tensor base = at::where(above, x, at::ones_like(x));
        const at::Tensor power = at::pow(base, in.scale / (base.sqrt() + 1));
        return at::where(above, power, x) * at::sigmoid(x) * y;
      }
      case EntryForm::kElu1:
        return at::relu(x) + at::exp(x.clamp_max(0));
      case EntryForm::kSigmoid:
        return at::sigmoid(x);
      case EntryForm::kLogSigmoid:
        return at::log_sigmoid(x) * in.scale;
      case EntryForm::kMixedGate:
        return x * (1 + (y - 1) * w);
      case EntryForm::kGelu:
        return at::gelu(w.defined() ? x + w : x, "tanh");
      case EntryForm::kSquareRelu:
        return at::relu(x).square();
    }
    return x;
  };
  return value().to(in.x.scalar_type()).contiguous();
}

// A call and the tensors that its pointers reach into.
struct Held {
  at::Tensor x, y;
  OptionalTensor weight;
  EntryFormCall call;

  explicit Held(const Call& in) : x(in.x), weight(in.weight) {
    call.form = in.form;
    call.dtype = KernelType(x);
    call.width = x.size(-1);
    call.rows = call.width == 0 ? 0 : x.numel() / call.width;
    call.scale = static_cast<float>(in.scale);
    call.x = Rows(x);
    if (in.y.has_value()) {
      y = *in.y;
      call.y = Rows(y);
    }
    call.weight = DenseFloats(weight);
  }

  static EntryRows Rows(at::Tensor& tensor) {
    const int64_t stride = RowStride(tensor);
    return {const_cast<void*>(tensor.const_data_ptr()), stride};
  }
};

at::Tensor ForwardCpu(const Call& in) {
  if (!Serves(in)) return Composed(in);
  const Held held(in);
  at::Tensor out = EmptyDense(in.x.sizes(), in.x.scalar_type());
  TorchExecutor executor(WorkersFor(in.x.numel()));
  EntryFormForward(held.call, {out.data_ptr(), held.call.width}, executor);
  return out;
}

Gradients BackwardCpu(const at::Tensor& grad_out, const Call& in) {
  const Held held(in);
  const auto none = [] { return at::empty({0}, at::kFloat); };
  at::Tensor flow = grad_out.to(in.x.scalar_type());
  EntryFormGradients g;
  g.grad_out = Held::Rows(flow);
  const at::Tensor x = EmptyDense(in.x.sizes(), in.x.scalar_type());
  g.grad_x = {x.data_ptr(), held.call.width};
  at::Tensor y = none(), weight = none();
  if (in.y.has_value()) {
    y = EmptyDense(in.x.sizes(), in.x.scalar_type());
    g.grad_y = {y.data_ptr(), held.call.width};
  }
  if (in.weight.has_value()) {
    weight = EmptyDense(in.weight->sizes());
    g.grad_weight = weight.data_ptr<float>();
  }
  TorchExecutor executor(WorkersFor(in.x.numel()));
  const Workspace workspace(
      EntryFormGradientBytes(held.call, in.weight.has_value()));
  EntryFormBackward(held.call, g, executor, workspace.data());
  if (in.weight.has_value()) weight = weight.to(in.weight->scalar_type());
  return {x, y, weight};
}

Gradients BackwardMeta(const at::Tensor&, const Call& in) {
  const auto like = [&](const OptionalTensor& x) {
    return x.has_value() ? at::empty_symint(x->sym_sizes(), x->options())
                         : at::empty({0}, in.x.options().dtype(at::kFloat));
  };
  return {like(in.x), like(in.y), like(in.weight)};
}

at::Tensor Dispatch(const Call& in) {
  static const auto op = FindOp<Signature>("tarn::entry_form");
  return op.call(in.x, in.y, in.weight, in.name, in.scale);
}

struct EntryFormFunction : public torch::autograd::Function<EntryFormFunction> {
  static constexpr bool is_traceable = true;

  static at::Tensor forward(AutogradContext* ctx, const at::Tensor&,
                            const OptionalTensor&, const OptionalTensor&,
                            const Call& in) {
    at::AutoDispatchBelowADInplaceOrView guard;
    ctx->save_for_backward({in.x, UndefinedOr(in.y), UndefinedOr(in.weight)});
    ctx->saved_data["form"] = in.name;
    ctx->saved_data["scale"] = in.scale;
    return Dispatch(in);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const std::string name = ctx->saved_data["form"].toStringRef();
    const double scale = ctx->saved_data["scale"].toDouble();
    if (at::GradMode::is_enabled()) {  // the gradient may be differentiated
      variable_list found =
          ComposedGradients(saved, grads, [&](const variable_list& x) {
            return variable_list{Composed(
                CallOf(x[0], NoneOr(x[1]), NoneOr(x[2]), name, scale))};
          });
      found.resize(4);
      return found;
    }
    static const auto op =
        FindGradientOp<BackwardSignature>("tarn::entry_form_backward");
    const auto [x, y, weight] = op.call(grads[0], saved[0], NoneOr(saved[1]),
                                        NoneOr(saved[2]), name, scale);
    return {x, saved[1].defined() ? y : at::Tensor(),
            saved[2].defined() ? weight : at::Tensor(), at::Tensor()};
  }
};

at::Tensor ForwardAutograd(const Call& in) {
  if (!Serves(in)) return Composed(in);
  if (!WantsGradient(in.x, in.y, in.weight)) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return Dispatch(in);
  }
  return EntryFormFunction::apply(in.x, in.y, in.weight, in);
}

template <at::Tensor (*kForward)(const Call&)>
at::Tensor Flat(const at::Tensor& x, const OptionalTensor& y,
                const OptionalTensor& weight, c10::string_view form,
                double scale) {
  return WithTorchErrors(
      [&] { return kForward(CallOf(x, y, weight, form, scale)); });
}

template <Gradients (*kBackward)(const at::Tensor&, const Call&)>
Gradients FlatBackward(const at::Tensor& grad_out, const at::Tensor& x,
                       const OptionalTensor& y, const OptionalTensor& weight,
                       c10::string_view form, double scale) {
  return WithTorchErrors(
      [&] { return kBackward(grad_out, CallOf(x, y, weight, form, scale)); });
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def(
      "entry_form(Tensor x, Tensor? y, Tensor? weight, str form, "
      "float scale=1.0) -> Tensor");
  m.def(
      "entry_form_backward(Tensor grad_out, Tensor x, Tensor? y, "
      "Tensor? weight, str form, float scale) -> (Tensor grad_x, "
      "Tensor grad_y, Tensor grad_weight)");
}
TORCH_LIBRARY_IMPL(tarn, CPU, m) {
  m.impl("entry_form", TORCH_FN(Flat<&ForwardCpu>));
  m.impl("entry_form_backward", TORCH_FN(FlatBackward<&BackwardCpu>));
}
TORCH_LIBRARY_IMPL(tarn, Meta, m) {
  m.impl("entry_form", TORCH_FN(Flat<&Composed>));
  m.impl("entry_form_backward", TORCH_FN(FlatBackward<&BackwardMeta>));
}
// Devices without kernels, and torch.func.vmap.
TORCH_LIBRARY_IMPL(tarn, CompositeExplicitAutograd, m) {
  m.impl("entry_form", TORCH_FN(Flat<&Composed>));
}
TORCH_LIBRARY_IMPL(tarn, FuncTorchBatched, m) {
  m.impl("entry_form", TORCH_FN(Flat<&Composed>));
}
TORCH_LIBRARY_IMPL(tarn, Autograd, m) {
  m.impl("entry_form", TORCH_FN(Flat<&ForwardAutograd>));
  m.impl("entry_form_backward",
         torch::autograd::autogradNotImplementedFallback());
}

}  // namespace
}  // namespace entry_form

at::Tensor ApplyEntryForm(const at::Tensor& x, const std::string& form,
                          const OptionalTensor& y, const OptionalTensor& weight,
                          double scale) {
  static const auto op = FindOp<entry_form::Signature>("tarn::entry_form");
  return op.call(x, y, weight, form, scale);
}

}  // namespace tarn::ops
