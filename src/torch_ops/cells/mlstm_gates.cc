// torch.ops.tarn.mlstm_gates: the exponential gates of mLSTM with their running
// maximum (kernels/mlstm).
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <cmath>

#include "kernels/mlstm/mlstm.h"
#include "torch_ops/cells/cells.h"
#include "torch_ops/common/executor.h"
#include "torch_ops/common/memory.h"
#include "torch_ops/common/sequences.h"
#include "torch_ops/common/tensors.h"
#include "torch_ops/common/wants.h"
#include "torch_ops/rows/rows.h"

namespace tarn::ops {
namespace mlstm_gates {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Call = MlstmCall;
using Results = MlstmGatesResults;
using T = at::Tensor;
using Maybe = OptionalTensor;
// Of both numbers, both biases and the first m; [0] for what is absent.
using Gradients = std::tuple<T, T, T, T, T>;
using Signature = Results(const T&, const T&, const Maybe&, const Maybe&,
                          double, const Maybe&, const Maybe&, const Maybe&);
using BackwardSignature = Gradients(const Maybe&, const Maybe&, const Maybe&,
                                    const Maybe&, const T&, const T&,
                                    const Maybe&, const Maybe&, double,
                                    const Maybe&, const Maybe&, const Maybe&,
                                    const T&, const T&);

// What flows back into the results, each absent where nothing does.
struct Flow {
  Maybe gates, factors, maxima, last;
};

Call CallOf(const T& input_gates, const T& forget_gates,
            const Maybe& input_bias, const Maybe& forget_bias, double softcap,
            const Maybe& kept, const Maybe& cu_seqlens,
            const Maybe& initial_maximum) {
  Call call;
  call.input_gates = input_gates;
  call.forget_gates = forget_gates;
  call.input_bias = input_bias;
  call.forget_bias = forget_bias;
  call.softcap = softcap;
  call.kept = kept;
  call.cu_seqlens = cu_seqlens;
  call.initial_maximum = initial_maximum;
  return call;
}

bool Serves(const Call& in) {
  return IsKernelType(in.input_gates) &&
         OnKernelDevice(in.input_gates, in.forget_gates, in.input_bias,
                        in.forget_bias, in.initial_maximum);
}

// m of each token and of the one before it, [B T, H], from i and log sigma(f):
// a scan by doubling, as in torch_ops/elementwise/composed.cc, in which sums
// and maxima never reach over the first token of a sequence.
struct Maxima {
  T before, after, last;  // last: of each sequence
};

Maxima ScanMaxima(const Call& in, const T& inputs, const T& decays) {
  const c10::SymInt heads = inputs.sym_size(2),
                    tokens = inputs.sym_size(0) * inputs.sym_size(1);
  const TokenSequences sequences = SequencesOf(inputs, {}, in.cu_seqlens);
  const T places = Range(tokens, inputs);
  const T before = places - sequences.first.index_select(0, sequences.of_token);
  const T first =
      in.initial_maximum.has_value()
          ? *in.initial_maximum
          : at::zeros_symint({sequences.count, heads}, inputs.options());
  const T start = first.index_select(0, sequences.of_token);
  const T zero = Zero(inputs), least = zero - kInfinity;
  T sum = decays.reshape_symint({tokens, heads});
  T most = inputs.reshape_symint({tokens, heads});
  const int64_t seq_len = inputs.sym_size(1).guard_int(__FILE__, __LINE__);
  for (int64_t step = 1; step < seq_len; step *= 2) {
    const T within = (before >= step).unsqueeze(1);
    const auto earlier = [&](const T& x, const T& none) {
      return at::where(within, x.roll(step, 0), none);
    };
    most = at::maximum(most, sum + earlier(most, least));
    sum = sum + earlier(sum, zero);
  }
  const T after = at::maximum(most, sum + start);
  const T last = at::where(sequences.end > sequences.first,
                           sequences.end - 1 + sequences.count,
                           Range(sequences.count, inputs));
  return {at::where((before >= 1).unsqueeze(1), after.roll(1, 0), start), after,
          at::cat({first, after}).index_select(0, last)};
}

Results Composed(const Call& in) {
  CheckSequences("mlstm", {}, in.cu_seqlens, in.input_gates.sym_size(1));
  const at::ScalarType type = ComputeType(in.input_gates);
  const auto capped = [&](const T& numbers, const Maybe& bias) {
    T x = numbers.to(type);
    // What a token that is not kept holds must not reach gradients either.
    if (in.kept.has_value()) x = at::where(in.kept->unsqueeze(-1), x, Zero(x));
    if (bias.has_value()) x = x + bias->to(type);
    return in.softcap == 0 ? x : in.softcap * at::tanh(x / in.softcap);
  };
  T inputs = capped(in.input_gates, in.input_bias);
  T decays = at::log_sigmoid(capped(in.forget_gates, in.forget_bias));
  if (in.kept.has_value()) {
    const T kept = in.kept->unsqueeze(-1);
    inputs = at::where(kept, inputs, Zero(inputs) - kInfinity);
    decays = at::where(kept, decays, Zero(decays));
  }
  const Maxima m = ScanMaxima(in, inputs, decays);
  const auto rows = [&](const T& x) {
    return x.reshape_symint(inputs.sym_sizes());
  };
  T gates = decays + rows(m.before - m.after);
  T factors = (inputs - rows(m.after)).exp();
  if (in.kept.has_value()) {  // nothing flows back to what was not kept
    const T kept = in.kept->unsqueeze(-1);
    gates = at::where(kept, gates, Zero(gates));
    factors = at::where(kept, factors, Zero(factors));
  }
  return {gates.contiguous(), factors.contiguous(), rows(m.after).contiguous(),
          m.last};
}

// The kernel's view [B, T, 1, H].
TensorView View(const char* name, const T& x, T& held) {
  held = x.unsqueeze(2);
  return ViewOf(name, held);
}

// A call and the tensors that its pointers reach into.
struct Held {
  T input_gates, forget_gates, kept;
  Maybe input_bias, forget_bias, cu_seqlens, initial_maximum;
  MlstmGatesInputs inputs;

  explicit Held(const Call& in)
      : input_bias(in.input_bias),
        forget_bias(in.forget_bias),
        cu_seqlens(in.cu_seqlens),
        initial_maximum(in.initial_maximum) {
    inputs.input_gates = View("input_gates", in.input_gates, input_gates);
    inputs.forget_gates = View("forget_gates", in.forget_gates, forget_gates);
    inputs.input_bias = DenseFloats(input_bias);
    inputs.forget_bias = DenseFloats(forget_bias);
    inputs.softcap = static_cast<float>(in.softcap);
    if (in.kept.has_value()) {
      kept = in.kept->contiguous();
      inputs.kept = kept.const_data_ptr<bool>();
    }
    inputs.cu_seqlens = DenseLongs(cu_seqlens);
    if (cu_seqlens.has_value()) inputs.sequences = cu_seqlens->size(0) - 1;
    inputs.initial_maximum = DenseFloats(initial_maximum);
  }
};

Results ForwardCpu(const Call& in) {
  if (!Serves(in)) return Composed(in);
  const Held held(in);
  const auto sizes = in.input_gates.sizes();
  const T gates = EmptyDense(sizes), factors = EmptyDense(sizes),
          maxima = EmptyDense(sizes),
          last = EmptyDense({held.inputs.SequenceCount(), sizes[2]});
  T rows[3];
  TorchExecutor executor(WorkersFor(in.input_gates.numel()));
  MlstmGatesForward(
      held.inputs,
      {View("gates", gates, rows[0]), View("factors", factors, rows[1]),
       View("maxima", maxima, rows[2]), last.data_ptr<float>()},
      executor);
  return {gates, factors, maxima, last};
}

c10::SymInt States(const Call& in) {
  return in.cu_seqlens.has_value() ? in.cu_seqlens->sym_size(0) - 1
                                   : in.input_gates.sym_size(0);
}

Results ForwardMeta(const Call& in) {
  const auto options =
      in.input_gates.options().dtype(ComputeType(in.input_gates));
  const auto rows = [&] {
    return at::empty_symint(in.input_gates.sym_sizes(), options);
  };
  return {rows(), rows(), rows(),
          at::empty_symint({States(in), in.input_gates.sym_size(2)}, options)};
}

Gradients BackwardCpu(const Flow& flow, const Call& in, const T& factors,
                      const T& maxima) {
  const Held held(in);
  const auto like = [](const T& x) {
    return EmptyDense(x.sizes(), x.scalar_type());
  };
  const T by_i = like(in.input_gates), by_f = like(in.forget_gates);
  const int64_t heads = in.input_gates.size(2);
  const T input_bias = EmptyDense({heads}), forget_bias = EmptyDense({heads}),
          first = EmptyDense({held.inputs.SequenceCount(), heads});
  T rows[7];
  const auto flowing = [&](const char* name, const Maybe& x, T& rows_of) {
    return x.has_value() ? View(name, x->to(at::kFloat), rows_of)
                         : TensorView();
  };
  MlstmGatesGradients g;
  g.factors = View("factors", factors, rows[0]);
  g.maxima = View("maxima", maxima, rows[1]);
  g.grad_gates = flowing("grad_gates", flow.gates, rows[2]);
  g.grad_factors = flowing("grad_factors", flow.factors, rows[3]);
  g.grad_maxima = flowing("grad_maxima", flow.maxima, rows[4]);
  Maybe last = flow.last;
  g.grad_final_maximum = DenseFloats(last);
  g.grad_input = View("grad_input", by_i, rows[5]);
  g.grad_forget = View("grad_forget", by_f, rows[6]);
  g.grad_input_bias = input_bias.data_ptr<float>();
  g.grad_forget_bias = forget_bias.data_ptr<float>();
  g.grad_initial_maximum = first.data_ptr<float>();
  TorchExecutor executor(WorkersFor(in.input_gates.numel()));
  const Workspace workspace(MlstmGradientBytes(held.inputs));
  MlstmGatesBackward(held.inputs, g, executor, workspace.data());
  const auto of = [](const T& gradient, const Maybe& given) {
    return given.has_value() ? gradient.to(given->scalar_type())
                             : at::empty({0}, at::kFloat);
  };
  return {by_i, by_f, of(input_bias, in.input_bias),
          of(forget_bias, in.forget_bias), of(first, in.initial_maximum)};
}

Gradients BackwardMeta(const Flow&, const Call& in, const T&, const T&) {
  const auto like = [&](const Maybe& x) {
    return x.has_value()
               ? at::empty_symint(x->sym_sizes(), x->options())
               : at::empty({0}, in.input_gates.options().dtype(at::kFloat));
  };
  return {like(in.input_gates), like(in.forget_gates), like(in.input_bias),
          like(in.forget_bias), like(in.initial_maximum)};
}

Results Dispatch(const Call& in) {
  static const auto op = FindOp<Signature>("tarn::mlstm_gates");
  return op.call(in.input_gates, in.forget_gates, in.input_bias, in.forget_bias,
                 in.softcap, in.kept, in.cu_seqlens, in.initial_maximum);
}

// Arguments that may need a gradient are passed separately, as apply() sees
// only those; `in` holds them again with the rest.
struct MlstmGatesFunction
    : public torch::autograd::Function<MlstmGatesFunction> {
  static constexpr bool is_traceable = true;

  static variable_list forward(AutogradContext* ctx, const T&, const T&,
                               const Maybe&, const Maybe&, const Maybe&,
                               const Call& in) {
    at::AutoDispatchBelowADInplaceOrView guard;
    const auto [gates, factors, maxima, last] = Dispatch(in);
    ctx->save_for_backward({in.input_gates, in.forget_gates,
                            UndefinedOr(in.input_bias),
                            UndefinedOr(in.forget_bias), UndefinedOr(in.kept),
                            UndefinedOr(in.cu_seqlens),
                            UndefinedOr(in.initial_maximum), factors, maxima});
    ctx->saved_data["softcap"] = in.softcap;
    ctx->set_materialize_grads(false);
    return {gates, factors, maxima, last};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const double softcap = ctx->saved_data["softcap"].toDouble();
    const auto call = [&](const variable_list& x) {
      return CallOf(x[0], x[1], NoneOr(x[2]), NoneOr(x[3]), softcap,
                    NoneOr(saved[4]), NoneOr(saved[5]), NoneOr(x[4]));
    };
    const variable_list given = {saved[0], saved[1], saved[2], saved[3],
                                 saved[6]};
    if (at::GradMode::is_enabled()) {  // the gradient may be differentiated
      variable_list found =
          ComposedGradients(given, grads, [&](const variable_list& x) {
            const auto [gates, factors, maxima, last] = Composed(call(x));
            return variable_list{gates, factors, maxima, last};
          });
      found.resize(6);
      return found;
    }
    static const auto op =
        FindGradientOp<BackwardSignature>("tarn::mlstm_gates_backward");
    const Call in = call(given);
    const auto [by_i, by_f, input_bias, forget_bias, first] = op.call(
        NoneOr(grads[0]), NoneOr(grads[1]), NoneOr(grads[2]), NoneOr(grads[3]),
        in.input_gates, in.forget_gates, in.input_bias, in.forget_bias, softcap,
        in.kept, in.cu_seqlens, in.initial_maximum, saved[7], saved[8]);
    return {by_i,
            by_f,
            saved[2].defined() ? input_bias : T(),
            saved[3].defined() ? forget_bias : T(),
            saved[6].defined() ? first : T(),
            T()};
  }
};

// The composed form's steps would bind a program to one number of tokens.
Results Shapes(const Call& in) {
  const auto [gates, factors, maxima, last] = ForwardMeta(in);
  const auto like = [&](const T& x) {
    return ShapeOf(x.sym_sizes().vec(), in.input_gates, x.scalar_type(),
                   {in.input_gates, in.forget_gates, in.input_bias,
                    in.forget_bias, in.initial_maximum});
  };
  return {like(gates), like(factors), like(maxima), like(last)};
}

Results ForwardAutograd(const Call& in) {
  if (ShapesAlone(in.input_gates)) return Shapes(in);
  if (!Serves(in)) return Composed(in);
  if (!WantsGradient(in.input_gates, in.forget_gates, in.input_bias,
                     in.forget_bias, in.initial_maximum)) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return Dispatch(in);
  }
  const variable_list found =
      MlstmGatesFunction::apply(in.input_gates, in.forget_gates, in.input_bias,
                                in.forget_bias, in.initial_maximum, in);
  return {found[0], found[1], found[2], found[3]};
}

template <Results (*kForward)(const Call&)>
Results Flat(const T& input_gates, const T& forget_gates,
             const Maybe& input_bias, const Maybe& forget_bias, double softcap,
             const Maybe& kept, const Maybe& cu_seqlens,
             const Maybe& initial_maximum) {
  return WithTorchErrors([&] {
    const Call in = CallOf(input_gates, forget_gates, input_bias, forget_bias,
                           softcap, kept, cu_seqlens, initial_maximum);
    CheckMlstmGates(in);
    return kForward(in);
  });
}

template <Gradients (*kBackward)(const Flow&, const Call&, const T&, const T&)>
Gradients FlatBackward(const Maybe& grad_gates, const Maybe& grad_factors,
                       const Maybe& grad_maxima, const Maybe& grad_final,
                       const T& input_gates, const T& forget_gates,
                       const Maybe& input_bias, const Maybe& forget_bias,
                       double softcap, const Maybe& kept,
                       const Maybe& cu_seqlens, const Maybe& initial_maximum,
                       const T& factors, const T& maxima) {
  return WithTorchErrors([&] {
    const Call in = CallOf(input_gates, forget_gates, input_bias, forget_bias,
                           softcap, kept, cu_seqlens, initial_maximum);
    CheckMlstmGates(in);
    return kBackward({grad_gates, grad_factors, grad_maxima, grad_final}, in,
                     factors, maxima);
  });
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def(
      "mlstm_gates(Tensor input_gates, Tensor forget_gates, "
      "Tensor? input_bias=None, Tensor? forget_bias=None, float softcap=0.0, "
      "Tensor? kept=None, Tensor? cu_seqlens=None, "
      "Tensor? initial_maximum=None) -> (Tensor gates, Tensor factors, "
      "Tensor maxima, Tensor final_maximum)");
  m.def(
      "mlstm_gates_backward(Tensor? grad_gates, Tensor? grad_factors, "
      "Tensor? grad_maxima, Tensor? grad_final, Tensor input_gates, "
      "Tensor forget_gates, Tensor? input_bias, Tensor? forget_bias, "
      "float softcap, Tensor? kept, Tensor? cu_seqlens, "
      "Tensor? initial_maximum, Tensor factors, Tensor maxima) -> "
      "(Tensor input_gates_gradient, Tensor forget_gates_gradient, "
      "Tensor input_bias_gradient, Tensor forget_bias_gradient, "
      "Tensor initial_maximum_gradient)");
}
TORCH_LIBRARY_IMPL(tarn, CPU, m) {
  m.impl("mlstm_gates", TORCH_FN(Flat<&ForwardCpu>));
  m.impl("mlstm_gates_backward", TORCH_FN(FlatBackward<&BackwardCpu>));
}
TORCH_LIBRARY_IMPL(tarn, Meta, m) {
  m.impl("mlstm_gates", TORCH_FN(Flat<&ForwardMeta>));
  m.impl("mlstm_gates_backward", TORCH_FN(FlatBackward<&BackwardMeta>));
}
// Devices without kernels, and torch.func.vmap.
TORCH_LIBRARY_IMPL(tarn, CompositeExplicitAutograd, m) {
  m.impl("mlstm_gates", TORCH_FN(Flat<&Composed>));
}
TORCH_LIBRARY_IMPL(tarn, FuncTorchBatched, m) {
  m.impl("mlstm_gates", TORCH_FN(Flat<&Composed>));
}
TORCH_LIBRARY_IMPL(tarn, Autograd, m) {
  m.impl("mlstm_gates", TORCH_FN(Flat<&ForwardAutograd>));
  m.impl("mlstm_gates_backward",
         torch::autograd::autogradNotImplementedFallback());
}

}  // namespace
}  // namespace mlstm_gates

void CheckMlstmGates(const MlstmCall& in) {
  const at::Tensor& x = in.input_gates;
  const Wants wants("mlstm", x);
  wants.Floating("input_gates", x);
  if (x.dim() != 3 || x.sym_size(2) < 1) {
    throw ShapeError(wants.Argument("input_gates"), "[batch, seq_len, heads]",
                     SizesText(x.sym_sizes()));
  }
  wants.Device("forget_gates", in.forget_gates);
  wants.DType("forget_gates", in.forget_gates, x.scalar_type());
  wants.Sizes("forget_gates", in.forget_gates, x.sym_sizes().vec());
  for (const auto& [name, bias] : {std::pair{"input_bias", in.input_bias},
                                   std::pair{"forget_bias", in.forget_bias}}) {
    if (!bias.has_value()) continue;
    wants.Device(name, *bias);
    wants.Floating(name, *bias);
    wants.Sizes(name, *bias, {x.sym_size(2)});
  }
  if (!(in.softcap >= 0 && std::isfinite(in.softcap))) {
    throw ArgumentError(wants.Argument("softcap"), "a number of at least 0",
                        StrCat(in.softcap));
  }
  if (in.kept.has_value()) {
    wants.Device("kept", *in.kept);
    wants.DType("kept", *in.kept, at::kBool);
    wants.Sizes("kept", *in.kept, {x.sym_size(0), x.sym_size(1)});
  }
  const c10::SymInt states =
      wants.Sequences(in.lengths, in.cu_seqlens, x.sym_size(0));
  if (!in.initial_maximum.has_value()) return;
  wants.Device("initial_maximum", *in.initial_maximum);
  wants.DType("initial_maximum", *in.initial_maximum, ComputeType(x));
  wants.Sizes("initial_maximum", *in.initial_maximum, {states, x.sym_size(2)});
}

MlstmGatesResults MlstmGates(const MlstmCall& call) {
  return mlstm_gates::Dispatch(call);
}

}  // namespace tarn::ops
