// torch.ops.tarn.rg_lru_gates: what RG-LRU's recurrence takes (kernels/rg_lru).
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/expm1.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/where.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <cmath>
#include <optional>

#include "kernels/rg_lru/rg_lru.h"
#include "torch_ops/cells/cells.h"
#include "torch_ops/common/executor.h"
#include "torch_ops/common/memory.h"
#include "torch_ops/common/tensors.h"
#include "torch_ops/common/wants.h"
#include "torch_ops/rows/rows.h"

namespace tarn::ops {
namespace rg_lru_gates {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Call = RgLruGatesCall;
using Two = RgLruGatesResults;
using T = at::Tensor;
using Maybe = OptionalTensor;
// Of the three rows, Lambda and the biases; [0] for what is absent.
using Gradients = std::tuple<T, T, T, T, T, T>;
using Slope = std::optional<double>;
using Signature = Two(const T&, const T&, const T&, const T&, const Maybe&,
                      const Maybe&, const Maybe&, const Maybe&, Slope);
using BackwardSignature = Gradients(const Maybe&, const Maybe&, const T&,
                                    const T&, const T&, const T&, const Maybe&,
                                    const Maybe&, const Maybe&, const Maybe&,
                                    Slope);

bool Serves(const Call& in) {
  return IsKernelType(in.inputs) &&
         OnKernelDevice(in.inputs, in.input_gates, in.recurrence_gates,
                        in.Lambda, in.input_bias, in.recurrence_bias);
}

// What is in rows that are not kept must reach neither results nor gradients.
Two Composed(const Call& in) {
  const at::ScalarType type = ComputeType(in.inputs);
  T kept;
  if (in.kept.has_value()) kept = in.kept->unsqueeze(-1);
  const auto masked = [&](const T& x) {
    return kept.defined() ? at::where(kept, x, Zero(x)) : x;
  };
  const auto wide = [&](const T& x, const Maybe& bias) {
    const T rows = masked(x.to(type));
    return bias.has_value() ? rows + bias->to(type) : rows;
  };
  const T rates = at::log_sigmoid(-in.Lambda.to(type)) * kRgLruRate;
  T gates = at::sigmoid(wide(in.recurrence_gates, in.recurrence_bias)) * rates;
  const T squares = -at::expm1(2 * gates);
  T roots = squares.clamp_min(1e-30).sqrt();
  if (std::isfinite(in.most_slope)) {
    // The same value, as a line of that slope.
    const T line =
        roots.detach() + in.most_slope * (squares - squares.detach());
    roots = at::where(roots * (2 * in.most_slope) < 1, line, roots);
  }
  if (in.begins.has_value()) {
    const T begins = in.begins->unsqueeze(-1);
    roots = at::where(begins, Zero(roots) + 1, roots);
    gates = at::where(begins, Zero(gates) - kInfinity, gates);
  }
  const T inputs = roots * at::sigmoid(wide(in.input_gates, in.input_bias)) *
                   wide(in.inputs, std::nullopt);
  return {masked(inputs).contiguous(), masked(gates).contiguous()};
}

// A call and the tensors that its pointers reach into.
struct Held {
  T inputs, input_gates, recurrence_gates, rates, begins, kept;
  Maybe Lambda, input_bias, recurrence_bias;
  tarn::RgLruCall call;

  explicit Held(const Call& in)
      : inputs(in.inputs),
        input_gates(in.input_gates),
        recurrence_gates(in.recurrence_gates),
        Lambda(in.Lambda),
        input_bias(in.input_bias),
        recurrence_bias(in.recurrence_bias) {
    const int64_t count = inputs.size(-1);
    rates = EmptyDense({count});
    RgLruRates(DenseFloats(Lambda), count, rates.data_ptr<float>());
    call.channels = {count, rates.const_data_ptr<float>(),
                     DenseFloats(input_bias), DenseFloats(recurrence_bias),
                     static_cast<float>(in.most_slope)};
    call.dtype = KernelType(inputs);
    call.rows = count == 0 ? 0 : inputs.numel() / count;
    call.x_stride = RowStride(inputs);
    call.input_stride = RowStride(input_gates);
    call.recurrence_stride = RowStride(recurrence_gates);
    call.x = inputs.const_data_ptr();
    call.input_gates = input_gates.const_data_ptr();
    call.recurrence_gates = recurrence_gates.const_data_ptr();
    if (in.begins.has_value()) {
      begins = in.begins->contiguous();
      call.begins = begins.const_data_ptr<bool>();
    }
    if (in.kept.has_value()) {
      kept = in.kept->contiguous();
      call.kept = kept.const_data_ptr<bool>();
    }
  }
};

Two ForwardCpu(const Call& in) {
  if (!Serves(in)) return Composed(in);
  const Held held(in);
  const T inputs = EmptyDense(in.inputs.sizes()),
          gates = EmptyDense(in.inputs.sizes());
  TorchExecutor executor(WorkersFor(in.inputs.numel()));
  RgLruGatesForward(held.call, inputs.data_ptr<float>(),
                    gates.data_ptr<float>(), executor);
  return {inputs, gates};
}

Gradients BackwardCpu(const Maybe& grad_inputs, const Maybe& grad_gates,
                      const Call& in) {
  const Held held(in);
  const int64_t count = held.call.channels.count;
  Maybe by_inputs = grad_inputs, by_gates = grad_gates;
  const auto like = [](const T& x) {
    return EmptyDense(x.sizes(), x.scalar_type());
  };
  const T x = like(in.inputs), p_i = like(in.input_gates),
          p_r = like(in.recurrence_gates);
  const T Lambda = EmptyDense({count}), input_bias = EmptyDense({count}),
          recurrence_bias = EmptyDense({count});
  RgLruGradients g;
  g.grad_inputs = DenseFloats(by_inputs);
  g.grad_gates = DenseFloats(by_gates);
  g.grad_x = x.data_ptr();
  g.grad_input_gates = p_i.data_ptr();
  g.grad_recurrence_gates = p_r.data_ptr();
  g.grad_rates = Lambda.data_ptr<float>();
  g.grad_input_bias = input_bias.data_ptr<float>();
  g.grad_recurrence_bias = recurrence_bias.data_ptr<float>();
  TorchExecutor executor(WorkersFor(in.inputs.numel()));
  const Workspace workspace(RgLruGradientBytes(held.call));
  RgLruGatesBackward(held.call, g, executor, workspace.data());
  RgLruRatesBackward(held.Lambda->const_data_ptr<float>(), g.grad_rates, count,
                     g.grad_rates);
  const auto of = [](const T& gradient, const Maybe& given) {
    return given.has_value() ? gradient.to(given->scalar_type())
                             : at::empty({0}, at::kFloat);
  };
  return {x,
          p_i,
          p_r,
          of(Lambda, in.Lambda),
          of(input_bias, in.input_bias),
          of(recurrence_bias, in.recurrence_bias)};
}

Gradients BackwardMeta(const Maybe&, const Maybe&, const Call& in) {
  const auto like = [&](const Maybe& x) {
    return x.has_value()
               ? at::empty_symint(x->sym_sizes(), x->options())
               : at::empty({0}, in.inputs.options().dtype(at::kFloat));
  };
  return {like(in.inputs), like(in.input_gates), like(in.recurrence_gates),
          like(in.Lambda), like(in.input_bias),  like(in.recurrence_bias)};
}

Two Dispatch(const Call& in) {
  static const auto op = FindOp<Signature>("tarn::rg_lru_gates");
  return op.call(in.inputs, in.input_gates, in.recurrence_gates, in.Lambda,
                 in.input_bias, in.recurrence_bias, in.begins, in.kept,
                 in.most_slope);
}

// Arguments that may need a gradient are passed separately, as apply() sees
// only those; `in` holds them again with the rest.
struct RgLruFunction : public torch::autograd::Function<RgLruFunction> {
  static constexpr bool is_traceable = true;

  static variable_list forward(AutogradContext* ctx, const T&, const T&,
                               const T&, const T&, const Maybe&, const Maybe&,
                               const Call& in) {
    at::AutoDispatchBelowADInplaceOrView guard;
    ctx->save_for_backward({in.inputs, in.input_gates, in.recurrence_gates,
                            in.Lambda, UndefinedOr(in.input_bias),
                            UndefinedOr(in.recurrence_bias),
                            UndefinedOr(in.begins), UndefinedOr(in.kept)});
    ctx->saved_data["most_slope"] = in.most_slope;
    ctx->set_materialize_grads(false);
    const auto [inputs, gates] = Dispatch(in);
    return {inputs, gates};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const double most_slope = ctx->saved_data["most_slope"].toDouble();
    const auto call = [&](const variable_list& x) -> Call {
      return {x[0],
              x[1],
              x[2],
              x[3],
              NoneOr(x[4]),
              NoneOr(x[5]),
              NoneOr(saved[6]),
              NoneOr(saved[7]),
              most_slope};
    };
    if (at::GradMode::is_enabled()) {  // the gradient may be differentiated
      variable_list found =
          ComposedGradients({saved.begin(), saved.begin() + 6}, grads,
                            [&](const variable_list& x) {
                              const auto [inputs, gates] = Composed(call(x));
                              return variable_list{inputs, gates};
                            });
      found.resize(7);
      return found;
    }
    static const auto op =
        FindGradientOp<BackwardSignature>("tarn::rg_lru_gates_backward");
    const Call in = call(saved);
    const auto [x, p_i, p_r, Lambda, input_bias, recurrence_bias] =
        op.call(NoneOr(grads[0]), NoneOr(grads[1]), in.inputs, in.input_gates,
                in.recurrence_gates, in.Lambda, in.input_bias,
                in.recurrence_bias, in.begins, in.kept, most_slope);
    return {x,
            p_i,
            p_r,
            Lambda,
            saved[4].defined() ? input_bias : T(),
            saved[5].defined() ? recurrence_bias : T(),
            T()};
  }
};

Two ForwardAutograd(const Call& in) {
  if (!Serves(in)) return Composed(in);
  if (!WantsGradient(in.inputs, in.input_gates, in.recurrence_gates, in.Lambda,
                     in.input_bias, in.recurrence_bias)) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return Dispatch(in);
  }
  const variable_list found =
      RgLruFunction::apply(in.inputs, in.input_gates, in.recurrence_gates,
                           in.Lambda, in.input_bias, in.recurrence_bias, in);
  return {found[0], found[1]};
}

template <Two (*kForward)(const Call&)>
Two Flat(const T& inputs, const T& input_gates, const T& recurrence_gates,
         const T& Lambda, const Maybe& input_bias, const Maybe& recurrence_bias,
         const Maybe& begins, const Maybe& kept, Slope most_slope) {
  return WithTorchErrors([&] {
    const Call in = {inputs, input_gates, recurrence_gates,
                     Lambda, input_bias,  recurrence_bias,
                     begins, kept,        most_slope.value_or(kInfinity)};
    CheckRgLruGates(in);
    return kForward(in);
  });
}

template <Gradients (*kBackward)(const Maybe&, const Maybe&, const Call&)>
Gradients FlatBackward(const Maybe& grad_inputs, const Maybe& grad_gates,
                       const T& inputs, const T& input_gates,
                       const T& recurrence_gates, const T& Lambda,
                       const Maybe& input_bias, const Maybe& recurrence_bias,
                       const Maybe& begins, const Maybe& kept,
                       Slope most_slope) {
  return WithTorchErrors([&] {
    const Call in = {inputs, input_gates, recurrence_gates,
                     Lambda, input_bias,  recurrence_bias,
                     begins, kept,        most_slope.value_or(kInfinity)};
    CheckRgLruGates(in);
    return kBackward(grad_inputs, grad_gates, in);
  });
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def(
      "rg_lru_gates(Tensor inputs, Tensor input_gates, "
      "Tensor recurrence_gates, Tensor Lambda, Tensor? input_bias=None, "
      "Tensor? recurrence_bias=None, Tensor? begins=None, Tensor? kept=None, "
      "float? most_slope=None) -> (Tensor gated_inputs, Tensor gates)");
  m.def(
      "rg_lru_gates_backward(Tensor? grad_inputs, Tensor? grad_gates, "
      "Tensor inputs, Tensor input_gates, Tensor recurrence_gates, "
      "Tensor Lambda, Tensor? input_bias, Tensor? recurrence_bias, "
      "Tensor? begins, Tensor? kept, float? most_slope=None) -> (Tensor "
      "inputs_gradient, "
      "Tensor input_gates_gradient, Tensor recurrence_gates_gradient, "
      "Tensor Lambda_gradient, Tensor input_bias_gradient, "
      "Tensor recurrence_bias_gradient)");
}
TORCH_LIBRARY_IMPL(tarn, CPU, m) {
  m.impl("rg_lru_gates", TORCH_FN(Flat<&ForwardCpu>));
  m.impl("rg_lru_gates_backward", TORCH_FN(FlatBackward<&BackwardCpu>));
}
TORCH_LIBRARY_IMPL(tarn, Meta, m) {
  m.impl("rg_lru_gates", TORCH_FN(Flat<&Composed>));
  m.impl("rg_lru_gates_backward", TORCH_FN(FlatBackward<&BackwardMeta>));
}
// Devices without kernels, and torch.func.vmap.
TORCH_LIBRARY_IMPL(tarn, CompositeExplicitAutograd, m) {
  m.impl("rg_lru_gates", TORCH_FN(Flat<&Composed>));
}
TORCH_LIBRARY_IMPL(tarn, FuncTorchBatched, m) {
  m.impl("rg_lru_gates", TORCH_FN(Flat<&Composed>));
}
TORCH_LIBRARY_IMPL(tarn, Autograd, m) {
  m.impl("rg_lru_gates", TORCH_FN(Flat<&ForwardAutograd>));
  m.impl("rg_lru_gates_backward",
         torch::autograd::autogradNotImplementedFallback());
}

}  // namespace
}  // namespace rg_lru_gates

void CheckRgLruGates(const RgLruGatesCall& in) {
  const Wants wants("rg_lru", in.inputs);
  wants.Floating("inputs", in.inputs);
  const auto sizes = in.inputs.sym_sizes();
  if (sizes.empty()) {
    throw ShapeError(wants.Argument("inputs"), "[..., channels]", "[]");
  }
  for (const auto& [name, x] :
       {std::pair{"input_gates", &in.input_gates},
        std::pair{"recurrence_gates", &in.recurrence_gates}}) {
    wants.Device(name, *x);
    wants.DType(name, *x, in.inputs.scalar_type());
    wants.Sizes(name, *x, sizes.vec());
  }
  for (const auto& [name, x] :
       {std::pair{"Lambda", OptionalTensor(in.Lambda)},
        std::pair{"input_bias", in.input_bias},
        std::pair{"recurrence_bias", in.recurrence_bias}}) {
    if (!x.has_value()) continue;
    wants.Device(name, *x);
    wants.Floating(name, *x);
    wants.Sizes(name, *x, {sizes.back()});
  }
  if (!(in.most_slope > 0)) {
    throw ArgumentError(wants.Argument("most_slope"), "a number above 0",
                        StrCat(in.most_slope));
  }
  for (const auto& [name, x] :
       {std::pair{"begins", in.begins}, std::pair{"kept", in.kept}}) {
    if (!x.has_value()) continue;
    wants.Device(name, *x);
    wants.DType(name, *x, at::kBool);
    wants.Sizes(name, *x, sizes.slice(0, sizes.size() - 1).vec());
  }
}

RgLruGatesResults RgLruGates(const RgLruGatesCall& call) {
  return rg_lru_gates::Dispatch(call);
}

}  // namespace tarn::ops
