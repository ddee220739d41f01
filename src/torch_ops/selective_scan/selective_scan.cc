// torch.ops.tarn.selective_scan: schema, shapes, autograd.
#include "torch_ops/selective_scan/selective_scan.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "kernels/selective_scan/blocks.h"
#include "torch_ops/common/tensors.h"
#include "torch_ops/layers/call.h"

namespace tarn::ops {
namespace selective_scan {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Call = ScanCall;
using Results = ScanResults;
using Gradients = ScanGradients;
using Signature = Results(const at::Tensor&, const at::Tensor&,
                          const at::Tensor&, const at::Tensor&,
                          const at::Tensor&, const OptionalTensor&,
                          const OptionalTensor&, const OptionalTensor&,
                          const OptionalTensor&, bool, bool);
using BackwardSignature = Gradients(
    const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
    const at::Tensor&, const OptionalTensor&, const OptionalTensor&,
    const OptionalTensor&, const OptionalTensor&, const at::Tensor&,
    const OptionalTensor&, const OptionalTensor&);

Results Dispatch(const Call& in, bool checkpoints) {
  static const auto op = FindOp<Signature>("tarn::selective_scan");
  return op.call(in.inputs, in.steps, in.rates, in.keys, in.queries, in.skip,
                 in.lengths, in.cu_seqlens, in.initial_state, in.return_state,
                 checkpoints);
}

Results ForwardComposed(const Call& in, bool) {
  return WithTorchErrors([&] { return ComposedScan(in); });
}

Results ForwardCpu(const Call& in, bool checkpoints) {
  if (!KernelServesAttention(in.inputs)) {
    return ForwardComposed(in, checkpoints);
  }
  return WithTorchErrors([&] {
    CheckScan(in);
    return ComputeScan(in, checkpoints);
  });
}

Results ForwardMeta(const Call& in, bool checkpoints) {
  return WithTorchErrors([&]() -> Results {
    CheckScan(in);
    const auto options = in.inputs.options().dtype(ComputeType(in.inputs));
    const c10::SymInt channels = in.inputs.sym_size(2),
                      states = in.keys.sym_size(2);
    const auto made = [&](bool wanted, const c10::SymInt& count,
                          const c10::SymInt& a, const c10::SymInt& b) {
      if (!wanted) return at::empty({0}, options);
      return at::empty_symint({count, a, b}, options);
    };
    const c10::SymInt count = in.cu_seqlens.has_value()
                                  ? in.cu_seqlens->sym_size(0) - 1
                                  : in.inputs.sym_size(0);
    const c10::SymInt kept =
        in.inputs.sym_size(0) * (in.inputs.sym_size(1) / kScanGroup);
    return {at::empty_symint(in.inputs.sym_sizes(), in.inputs.options()),
            made(in.return_state, count, channels, states),
            made(checkpoints, kept, states, channels)};
  });
}

Gradients BackwardCpu(const Call& in, const at::Tensor& checkpoints,
                      const OptionalTensor& grad_out,
                      const OptionalTensor& grad_state) {
  return WithTorchErrors([&] {
    CheckScan(in);
    return ComputeScanGradients(in, checkpoints, UndefinedOr(grad_out),
                                UndefinedOr(grad_state));
  });
}

Gradients BackwardMeta(const Call& in, const at::Tensor&, const OptionalTensor&,
                       const OptionalTensor&) {
  const auto like = [&](const OptionalTensor& x) {
    return x.has_value()
               ? at::empty_symint(x->sym_sizes(), x->options())
               : at::empty({0}, in.inputs.options().dtype(at::kFloat));
  };
  return {like(in.inputs),       like(in.steps),   like(in.rates),
          like(in.keys),         like(in.queries), like(in.skip),
          like(in.initial_state)};
}

// Arguments that may need a gradient are passed separately, as apply() sees
// only those; `in` holds them again with the rest.
struct ScanFunction : public torch::autograd::Function<ScanFunction> {
  static constexpr bool is_traceable = true;

  static variable_list forward(AutogradContext* ctx, const at::Tensor&,
                               const at::Tensor&, const at::Tensor&,
                               const at::Tensor&, const at::Tensor&,
                               const OptionalTensor&, const OptionalTensor&,
                               const Call& in) {
    at::AutoDispatchBelowADInplaceOrView guard;
    const auto [out, state, checkpoints] = Dispatch(in, /*checkpoints=*/true);
    ctx->save_for_backward({in.inputs, in.steps, in.rates, in.keys, in.queries,
                            UndefinedOr(in.skip), UndefinedOr(in.initial_state),
                            UndefinedOr(in.lengths), UndefinedOr(in.cu_seqlens),
                            checkpoints});
    ctx->saved_data["return_state"] = in.return_state;
    ctx->set_materialize_grads(false);
    if (in.return_state) {
      ctx->mark_non_differentiable({checkpoints});
    } else {
      ctx->mark_non_differentiable({state, checkpoints});
    }
    return {out, state, checkpoints};
  }

  // The first seven of `x` in a call.
  static void Set(const variable_list& x, Call& in) {
    in.inputs = x[0];
    in.steps = x[1];
    in.rates = x[2];
    in.keys = x[3];
    in.queries = x[4];
    in.skip = NoneOr(x[5]);
    in.initial_state = NoneOr(x[6]);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    Call in;
    Set(saved, in);
    in.lengths = NoneOr(saved[7]);
    in.cu_seqlens = NoneOr(saved[8]);
    in.return_state = ctx->saved_data["return_state"].toBool();
    if (at::GradMode::is_enabled()) {  // the gradient may be differentiated
      variable_list found =
          ComposedGradients(variable_list(saved.begin(), saved.begin() + 7),
                            {grads[0], grads[1]}, [&](const variable_list& x) {
                              Set(x, in);
                              const auto [out, state, _] = ComposedScan(in);
                              return variable_list{out, state};
                            });
      found.resize(8);
      return found;
    }
    static const auto op =
        FindGradientOp<BackwardSignature>("tarn::selective_scan_backward");
    const auto [inputs, steps, rates, keys, queries, skip, state] =
        op.call(in.inputs, in.steps, in.rates, in.keys, in.queries, in.skip,
                in.lengths, in.cu_seqlens, in.initial_state, saved[9],
                NoneOr(grads[0]), NoneOr(grads[1]));
    return {inputs,
            steps,
            rates,
            keys,
            queries,
            in.skip.has_value() ? skip : at::Tensor(),
            in.initial_state.has_value() ? state : at::Tensor(),
            at::Tensor()};
  }
};

// No states for the gradient: their number would bind a program to one side of
// a multiple of kScanGroup tokens.
Results Shapes(const Call& in) {
  const auto [out, state, none] = ForwardMeta(in, /*checkpoints=*/false);
  const auto like = [&](const at::Tensor& x) {
    return ShapeOf(x.sym_sizes().vec(), x, x.scalar_type(),
                   {in.inputs, in.steps, in.rates, in.keys, in.queries, in.skip,
                    in.initial_state});
  };
  return {like(out), in.return_state ? like(state) : state, none};
}

Results ForwardAutograd(const Call& in, bool checkpoints) {
  if (ShapesAlone(in.inputs)) return Shapes(in);
  if (!KernelServesAttention(in.inputs, in.steps, in.rates, in.keys, in.queries,
                             in.skip, in.initial_state)) {
    return ForwardComposed(in, checkpoints);
  }
  WithTorchErrors([&] { CheckScan(in); });
  if (!WantsGradient(in.inputs, in.steps, in.rates, in.keys, in.queries,
                     in.skip, in.initial_state)) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return Dispatch(in, checkpoints);
  }
  const variable_list r =
      ScanFunction::apply(in.inputs, in.steps, in.rates, in.keys, in.queries,
                          in.skip, in.initial_state, in);
  return {r[0], r[1], r[2]};
}

template <Results (*kForward)(const Call&, bool)>
Results Flat(const at::Tensor& inputs, const at::Tensor& steps,
             const at::Tensor& rates, const at::Tensor& keys,
             const at::Tensor& queries, const OptionalTensor& skip,
             const OptionalTensor& lengths, const OptionalTensor& cu_seqlens,
             const OptionalTensor& initial_state, bool return_state,
             bool checkpoints) {
  return kForward({inputs, steps, rates, keys, queries, skip, lengths,
                   cu_seqlens, initial_state, return_state},
                  checkpoints);
}

template <Gradients (*kBackward)(const Call&, const at::Tensor&,
                                 const OptionalTensor&, const OptionalTensor&)>
Gradients FlatBackward(const at::Tensor& inputs, const at::Tensor& steps,
                       const at::Tensor& rates, const at::Tensor& keys,
                       const at::Tensor& queries, const OptionalTensor& skip,
                       const OptionalTensor& lengths,
                       const OptionalTensor& cu_seqlens,
                       const OptionalTensor& initial_state,
                       const at::Tensor& checkpoints,
                       const OptionalTensor& grad_out,
                       const OptionalTensor& grad_state) {
  return kBackward({inputs, steps, rates, keys, queries, skip, lengths,
                    cu_seqlens, initial_state, grad_state.has_value()},
                   checkpoints, grad_out, grad_state);
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def(
      "selective_scan(Tensor inputs, Tensor steps, Tensor rates, Tensor keys, "
      "Tensor queries, Tensor? skip=None, Tensor? lengths=None, "
      "Tensor? cu_seqlens=None, Tensor? initial_state=None, "
      "bool return_state=False, bool checkpoints=False) -> "
      "(Tensor out, Tensor final_state, Tensor saved)");
  m.def(
      "selective_scan_backward(Tensor inputs, Tensor steps, Tensor rates, "
      "Tensor keys, Tensor queries, Tensor? skip, Tensor? lengths, "
      "Tensor? cu_seqlens, Tensor? initial_state, Tensor saved, "
      "Tensor? grad_out, Tensor? grad_state) -> "
      "(Tensor grad_inputs, Tensor grad_steps, Tensor grad_rates, "
      "Tensor grad_keys, Tensor grad_queries, Tensor grad_skip, "
      "Tensor grad_initial_state)");
}
TORCH_LIBRARY_IMPL(tarn, CPU, m) {
  m.impl("selective_scan", TORCH_FN(Flat<&ForwardCpu>));
  m.impl("selective_scan_backward", TORCH_FN(FlatBackward<&BackwardCpu>));
}
TORCH_LIBRARY_IMPL(tarn, Meta, m) {
  m.impl("selective_scan", TORCH_FN(Flat<&ForwardMeta>));
  m.impl("selective_scan_backward", TORCH_FN(FlatBackward<&BackwardMeta>));
}
// Devices without kernels, and torch.func.vmap.
TORCH_LIBRARY_IMPL(tarn, CompositeExplicitAutograd, m) {
  m.impl("selective_scan", TORCH_FN(Flat<&ForwardComposed>));
}
TORCH_LIBRARY_IMPL(tarn, FuncTorchBatched, m) {
  m.impl("selective_scan", TORCH_FN(Flat<&ForwardComposed>));
}
TORCH_LIBRARY_IMPL(tarn, Autograd, m) {
  m.impl("selective_scan", TORCH_FN(Flat<&ForwardAutograd>));
  m.impl("selective_scan_backward",
         torch::autograd::autogradNotImplementedFallback());
}

}  // namespace
}  // namespace selective_scan

ScanResults SelectiveScan(const ScanCall& call) {
  return selective_scan::Dispatch(call, /*checkpoints=*/false);
}

}  // namespace tarn::ops
