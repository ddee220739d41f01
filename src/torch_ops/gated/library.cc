// torch.ops.tarn.decay_attention, delta_attention and dplr_attention: schemas,
// and the way between their flat arguments and a GatedCall.
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>

#include "torch_ops/gated/gated.h"
#include "torch_ops/gated/register.h"
#include "torch_ops/layers/call.h"

namespace tarn::ops {
namespace gated_library {
namespace {

using T = at::Tensor;
using Maybe = OptionalTensor;

// Decay and delta: gates and extra, which are betas of the one and the bonus of
// the other. Dplr: reads, writes, gates.
using Signature = GatedResults(const T&, const T&, const T&, const Maybe&,
                               const Maybe&, const Maybe&, const Maybe&,
                               const Maybe&, double, bool, bool);
using PairSignature = GatedResults(const T&, const T&, const T&, const T&,
                                   const T&, const Maybe&, const Maybe&,
                                   const Maybe&, const Maybe&, double, bool,
                                   bool);
using Gradients = std::tuple<T, T, T, T, T, T>;
using PairGradients = std::tuple<T, T, T, T, T, T, T>;
using BackwardSignature = Gradients(const T&, const T&, const T&, const Maybe&,
                                    const Maybe&, const Maybe&, const Maybe&,
                                    const Maybe&, const T&, const Maybe&,
                                    const Maybe&, double);
using PairBackwardSignature = PairGradients(const T&, const T&, const T&,
                                            const T&, const T&, const Maybe&,
                                            const Maybe&, const Maybe&,
                                            const Maybe&, const T&,
                                            const Maybe&, const Maybe&, double);

GatedCall Call(GatedKind kind, const T& queries, const T& keys, const T& values,
               const Maybe& gates, const Maybe& lengths,
               const Maybe& cu_seqlens, const Maybe& initial_state,
               double scale, bool return_state) {
  GatedCall call;
  call.kind = kind;
  call.queries = queries;
  call.keys = keys;
  call.values = values;
  call.gates = gates;
  call.lengths = lengths;
  call.cu_seqlens = cu_seqlens;
  call.initial_state = initial_state;
  call.scale = scale;
  call.return_state = return_state;
  return call;
}

GatedCall WithExtra(GatedCall call, const Maybe& extra) {
  (call.delta() ? call.betas : call.bonus) = extra;
  return call;
}

GatedCall WithPair(GatedCall call, const T& reads, const T& writes) {
  call.reads = reads;
  call.writes = writes;
  return call;
}

using Form = GatedResults (*)(const GatedCall&, bool);
using BackwardForm = GatedGradients (*)(const GatedCall&, const T&,
                                        const Maybe&, const Maybe&);

template <GatedKind kKind, Form kForm>
GatedResults Flat(const T& queries, const T& keys, const T& values,
                  const Maybe& gates, const Maybe& extra, const Maybe& lengths,
                  const Maybe& cu_seqlens, const Maybe& initial_state,
                  double scale, bool return_state, bool checkpoints) {
  return kForm(WithExtra(Call(kKind, queries, keys, values, gates, lengths,
                              cu_seqlens, initial_state, scale, return_state),
                         extra),
               checkpoints);
}

template <Form kForm>
GatedResults FlatPair(const T& queries, const T& keys, const T& values,
                      const T& reads, const T& writes, const Maybe& gates,
                      const Maybe& lengths, const Maybe& cu_seqlens,
                      const Maybe& initial_state, double scale,
                      bool return_state, bool checkpoints) {
  return kForm(
      WithPair(Call(GatedKind::kDplr, queries, keys, values, gates, lengths,
                    cu_seqlens, initial_state, scale, return_state),
               reads, writes),
      checkpoints);
}

template <GatedKind kKind, BackwardForm kForm>
Gradients FlatBackward(const T& queries, const T& keys, const T& values,
                       const Maybe& gates, const Maybe& extra,
                       const Maybe& lengths, const Maybe& cu_seqlens,
                       const Maybe& initial_state, const T& checkpoints,
                       const Maybe& grad_out, const Maybe& grad_state,
                       double scale) {
  const GatedGradients g = kForm(
      WithExtra(Call(kKind, queries, keys, values, gates, lengths, cu_seqlens,
                     initial_state, scale, grad_state.has_value()),
                extra),
      checkpoints, grad_out, grad_state);
  return {g.queries, g.keys, g.values, g.gates, g.extra, g.initial_state};
}

template <BackwardForm kForm>
PairGradients FlatPairBackward(const T& queries, const T& keys, const T& values,
                               const T& reads, const T& writes,
                               const Maybe& gates, const Maybe& lengths,
                               const Maybe& cu_seqlens,
                               const Maybe& initial_state, const T& checkpoints,
                               const Maybe& grad_out, const Maybe& grad_state,
                               double scale) {
  const GatedGradients g = kForm(
      WithPair(Call(GatedKind::kDplr, queries, keys, values, gates, lengths,
                    cu_seqlens, initial_state, scale, grad_state.has_value()),
               reads, writes),
      checkpoints, grad_out, grad_state);
  return {g.queries, g.keys,  g.values,       g.reads,
          g.writes,  g.gates, g.initial_state};
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def(
      "decay_attention(Tensor queries, Tensor keys, Tensor values, "
      "Tensor? gates=None, Tensor? bonus=None, Tensor? lengths=None, "
      "Tensor? cu_seqlens=None, Tensor? initial_state=None, float scale=1.0, "
      "bool return_state=False, bool checkpoints=False) -> "
      "(Tensor out, Tensor final_state, Tensor saved)");
  m.def(
      "delta_attention(Tensor queries, Tensor keys, Tensor values, "
      "Tensor? gates, Tensor? betas, Tensor? lengths=None, "
      "Tensor? cu_seqlens=None, Tensor? initial_state=None, float scale=1.0, "
      "bool return_state=False, bool checkpoints=False) -> "
      "(Tensor out, Tensor final_state, Tensor saved)");
  m.def(
      "dplr_attention(Tensor queries, Tensor keys, Tensor values, "
      "Tensor reads, Tensor writes, Tensor? gates=None, Tensor? lengths=None, "
      "Tensor? cu_seqlens=None, Tensor? initial_state=None, float scale=1.0, "
      "bool return_state=False, bool checkpoints=False) -> "
      "(Tensor out, Tensor final_state, Tensor saved)");
  m.def(
      "decay_attention_backward(Tensor queries, Tensor keys, Tensor values, "
      "Tensor? gates, Tensor? bonus, Tensor? lengths, Tensor? cu_seqlens, "
      "Tensor? initial_state, Tensor saved, Tensor? grad_out, "
      "Tensor? grad_state, float scale) -> (Tensor grad_queries, "
      "Tensor grad_keys, Tensor grad_values, Tensor grad_gates, "
      "Tensor grad_bonus, Tensor grad_initial_state)");
  m.def(
      "delta_attention_backward(Tensor queries, Tensor keys, Tensor values, "
      "Tensor? gates, Tensor? betas, Tensor? lengths, Tensor? cu_seqlens, "
      "Tensor? initial_state, Tensor saved, Tensor? grad_out, "
      "Tensor? grad_state, float scale) -> (Tensor grad_queries, "
      "Tensor grad_keys, Tensor grad_values, Tensor grad_gates, "
      "Tensor grad_betas, Tensor grad_initial_state)");
  m.def(
      "dplr_attention_backward(Tensor queries, Tensor keys, Tensor values, "
      "Tensor reads, Tensor writes, Tensor? gates, Tensor? lengths, "
      "Tensor? cu_seqlens, Tensor? initial_state, Tensor saved, "
      "Tensor? grad_out, Tensor? grad_state, float scale) -> "
      "(Tensor grad_queries, Tensor grad_keys, Tensor grad_values, "
      "Tensor grad_reads, Tensor grad_writes, Tensor grad_gates, "
      "Tensor grad_initial_state)");
}

template <Form kForm>
void Register(torch::Library& m) {
  m.impl("decay_attention", TORCH_FN((Flat<GatedKind::kDecay, kForm>)));
  m.impl("delta_attention", TORCH_FN((Flat<GatedKind::kDelta, kForm>)));
  m.impl("dplr_attention", TORCH_FN(FlatPair<kForm>));
}
template <BackwardForm kForm>
void RegisterBackward(torch::Library& m) {
  m.impl("decay_attention_backward",
         TORCH_FN((FlatBackward<GatedKind::kDecay, kForm>)));
  m.impl("delta_attention_backward",
         TORCH_FN((FlatBackward<GatedKind::kDelta, kForm>)));
  m.impl("dplr_attention_backward", TORCH_FN(FlatPairBackward<kForm>));
}

void RegisterKernels(torch::Library& m) {
  Register<&GatedKernels>(m);
  RegisterBackward<&GatedBackwardKernels>(m);
}

TORCH_LIBRARY_IMPL(tarn, CPU, m) { RegisterKernels(m); }
TORCH_LIBRARY_IMPL(tarn, CUDA, m) { RegisterKernels(m); }
TORCH_LIBRARY_IMPL(tarn, Meta, m) {
  Register<&GatedMeta>(m);
  RegisterBackward<&GatedBackwardMeta>(m);
}
// Devices without kernels, and torch.func.vmap.
TORCH_LIBRARY_IMPL(tarn, CompositeExplicitAutograd, m) {
  Register<&GatedComposed>(m);
}
TORCH_LIBRARY_IMPL(tarn, FuncTorchBatched, m) { Register<&GatedComposed>(m); }
TORCH_LIBRARY_IMPL(tarn, Autograd, m) {
  Register<&GatedAutograd>(m);
  for (const char* op : {"decay_attention_backward", "delta_attention_backward",
                         "dplr_attention_backward"}) {
    m.impl(op, torch::autograd::autogradNotImplementedFallback());
  }
}

GatedResult Run(const GatedCall& call) {
  const auto [out, state, _] = CallGated(call, /*checkpoints=*/false);
  return {out, state};
}

GatedCall CallOf(GatedKind kind, const T& queries, const T& keys,
                 const T& values, const GatedOptions& o) {
  return Call(kind, queries, keys, values, o.gates, o.lengths, o.cu_seqlens,
              o.initial_state, o.scale, o.return_state);
}

}  // namespace
}  // namespace gated_library

GatedResults CallGated(const GatedCall& in, bool checkpoints) {
  using namespace gated_library;
  if (in.dplr()) {
    static const auto dplr = FindOp<PairSignature>("tarn::dplr_attention");
    return dplr.call(in.queries, in.keys, in.values, *in.reads, *in.writes,
                     in.gates, in.lengths, in.cu_seqlens, in.initial_state,
                     in.scale, in.return_state, checkpoints);
  }
  static const auto decay = FindOp<Signature>("tarn::decay_attention");
  static const auto delta = FindOp<Signature>("tarn::delta_attention");
  return (in.delta() ? delta : decay)
      .call(in.queries, in.keys, in.values, in.gates, in.extra(), in.lengths,
            in.cu_seqlens, in.initial_state, in.scale, in.return_state,
            checkpoints);
}

GatedGradients CallGatedBackward(const GatedCall& in,
                                 const at::Tensor& checkpoints,
                                 const OptionalTensor& grad_out,
                                 const OptionalTensor& grad_state) {
  using namespace gated_library;
  if (in.dplr()) {
    static const auto dplr =
        FindOp<PairBackwardSignature>("tarn::dplr_attention_backward");
    const auto [q, k, v, reads, writes, gates, state] =
        dplr.call(in.queries, in.keys, in.values, *in.reads, *in.writes,
                  in.gates, in.lengths, in.cu_seqlens, in.initial_state,
                  checkpoints, grad_out, grad_state, in.scale);
    return {q, k, v, gates, {}, state, reads, writes};
  }
  static const auto decay =
      FindOp<BackwardSignature>("tarn::decay_attention_backward");
  static const auto delta =
      FindOp<BackwardSignature>("tarn::delta_attention_backward");
  const auto [q, k, v, gates, extra, state] =
      (in.delta() ? delta : decay)
          .call(in.queries, in.keys, in.values, in.gates, in.extra(),
                in.lengths, in.cu_seqlens, in.initial_state, checkpoints,
                grad_out, grad_state, in.scale);
  return {q, k, v, gates, extra, state, {}, {}};
}

GatedResult DecayAttention(const at::Tensor& queries, const at::Tensor& keys,
                           const at::Tensor& values, const GatedOptions& o,
                           const OptionalTensor& bonus) {
  using namespace gated_library;
  return Run(
      WithExtra(CallOf(GatedKind::kDecay, queries, keys, values, o), bonus));
}

GatedResult DeltaAttention(const at::Tensor& queries, const at::Tensor& keys,
                           const at::Tensor& values, const at::Tensor& betas,
                           const GatedOptions& o) {
  using namespace gated_library;
  return Run(
      WithExtra(CallOf(GatedKind::kDelta, queries, keys, values, o), betas));
}

GatedResult DplrAttention(const at::Tensor& queries, const at::Tensor& keys,
                          const at::Tensor& values, const at::Tensor& reads,
                          const at::Tensor& writes, const GatedOptions& o) {
  using namespace gated_library;
  return Run(WithPair(CallOf(GatedKind::kDplr, queries, keys, values, o), reads,
                      writes));
}

}  // namespace tarn::ops
