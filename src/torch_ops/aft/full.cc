// torch.ops.tarn.aft_full: sequences (and heads, where a mask differs between
// them) go one by one through the blocks of blocks.h, so that no result depends
// on batch mates. Average and normaliser are kept for the gradient.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>

#include "torch_ops/aft/aft.h"
#include "torch_ops/aft/blocks.h"
#include "torch_ops/sparse/call.h"

namespace tarn::ops {
namespace aft_full {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Results = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
using Signature = Results(const at::Tensor&, const at::Tensor&,
                          const at::Tensor&, const at::Tensor&, bool,
                          c10::SymInt, const OptionalTensor&,
                          const OptionalTensor&, const OptionalTensor&);
using BackwardSignature = Gradients(const at::Tensor&, const at::Tensor&,
                                    const at::Tensor&, const at::Tensor&, bool,
                                    c10::SymInt, const OptionalTensor&,
                                    const OptionalTensor&,
                                    const OptionalTensor&, const at::Tensor&,
                                    const at::Tensor&, const at::Tensor&);

constexpr char kOp[] = "aft_full";

struct Call {
  at::Tensor queries, keys, values, position_bias;
  AttentionMasks masks;
};

void Check(const Call& in) {
  CheckOperands(kOp, in.queries, in.keys, in.values);
  if (in.queries.sym_size(3) != in.values.sym_size(3)) {
    throw ShapeError(
        StrCat(kOp, ": values"),
        StrCat("the width of queries and keys, ", in.queries.sym_size(3)),
        StrCat(in.values.sym_size(3)));
  }
  const at::Tensor& w = in.position_bias;
  if (w.dim() != 2 || w.sym_size(0) < in.queries.sym_size(1) ||
      w.sym_size(1) < in.keys.sym_size(1)) {
    throw ShapeError(StrCat(kOp, ": position_bias"),
                     StrCat("at least [", in.queries.sym_size(1), ", ",
                            in.keys.sym_size(1), "]"),
                     w.dim() == 2
                         ? StrCat("[", w.sym_size(0), ", ", w.sym_size(1), "]")
                         : StrCat(w.dim(), " axes"));
  }
  WantLike(kOp, "position_bias", w, in.queries, {w.sym_size(0), w.sym_size(1)});
  CheckAttentionMasks(kOp, in.masks, in.queries, in.keys);
}

// A checked call as planes: batch rows, or batch rows x heads.
struct Planes {
  at::Tensor queries, keys, values, position_bias, kept, allowed;
  int64_t heads = 1;  // planes a batch row
  bool causal = false;
  int64_t reach = 0;

  explicit Planes(const Call& in) {
    const at::ScalarType type = ComputeType(in.queries);
    kept =
        KeptPositions(in.masks.key_mask, in.masks.key_lengths, in.keys.size(1));
    queries = in.queries.to(type);
    keys = in.keys.to(type);
    values = Skip(in.values, kept);
    position_bias = in.position_bias.to(type);
    causal = in.masks.causal;
    reach = std::clamp<int64_t>(in.masks.causal_offset.expect_int(),
                                -queries.size(1), keys.size(1));
    if (!in.masks.attention_mask.has_value()) return;
    allowed = *in.masks.attention_mask;
    while (allowed.dim() < 4) allowed = allowed.unsqueeze(0);
    if (allowed.size(1) > 1) heads = queries.size(2);
    allowed =
        allowed.expand({queries.size(0), heads, queries.size(1), keys.size(1)});
  }

  int64_t count() const { return queries.size(0) * heads; }

  // x [B, T, H, V] of one plane as [T, channels]; a view where x is dense.
  at::Tensor Part(const at::Tensor& x, int64_t plane) const {
    const at::Tensor row = x.select(0, plane / heads);
    if (heads > 1) return row.select(1, plane % heads);
    return row.reshape({x.size(1), x.size(2) * x.size(3)});
  }

  AftPlane Plane(int64_t plane) const {
    AftPlane in;
    in.queries = Part(queries, plane);
    in.keys = Part(keys, plane);
    in.values = Part(values, plane);
    in.position_bias = position_bias;
    if (kept.defined()) in.kept = kept.select(0, plane / heads);
    if (allowed.defined()) {
      in.allowed = allowed.select(0, plane / heads).select(0, plane % heads);
    }
    in.causal = causal;
    in.reach = reach;
    return in;
  }
};

at::Tensor EmptyLike(const at::Tensor& x) {
  return at::empty(x.sizes(), x.options());  // dense, so that Part() is a view
}

Results Forward(const Call& in) {
  return WithTorchErrors([&]() -> Results {
    Check(in);
    const Planes planes(in);
    const Results results = {EmptyLike(planes.queries),
                             EmptyLike(planes.queries),
                             EmptyLike(planes.queries)};
    const auto& [out, average, normaliser] = results;
    for (int64_t p = 0; p < planes.count(); ++p) {
      AftPlaneForward(planes.Plane(p),
                      {planes.Part(out, p), planes.Part(average, p),
                       planes.Part(normaliser, p)});
    }
    return {out.to(in.queries.scalar_type()), average, normaliser};
  });
}

Gradients Backward(const Call& in, const at::Tensor& average,
                   const at::Tensor& normaliser, const at::Tensor& grad_out) {
  return WithTorchErrors([&]() -> Gradients {
    Check(in);
    const Planes planes(in);
    const Gradients results = {
        EmptyLike(planes.queries), EmptyLike(planes.keys),
        EmptyLike(planes.values),
        at::zeros(planes.position_bias.sizes(), planes.queries.options())};
    const auto& [q, k, v, w] = results;
    const at::Tensor grad = grad_out.to(planes.queries.scalar_type());
    for (int64_t p = 0; p < planes.count(); ++p) {
      AftPlaneBackward(
          planes.Plane(p),
          {{}, planes.Part(average, p), planes.Part(normaliser, p)},
          planes.Part(grad, p),
          {planes.Part(q, p), planes.Part(k, p), planes.Part(v, p), w});
    }
    const at::ScalarType dtype = in.queries.scalar_type();
    return {q.to(dtype), k.to(dtype), v.to(dtype), w.to(dtype)};
  });
}

at::Tensor EmptySym(const at::Tensor& x, at::ScalarType dtype) {
  return at::empty_symint(x.sym_sizes(), x.options().dtype(dtype));
}

Results ForwardMeta(const Call& in) {
  return WithTorchErrors([&]() -> Results {
    Check(in);
    const at::ScalarType type = ComputeType(in.queries);
    return {EmptySym(in.queries, in.queries.scalar_type()),
            EmptySym(in.queries, type), EmptySym(in.queries, type)};
  });
}

Gradients BackwardMeta(const Call& in, const at::Tensor&, const at::Tensor&,
                       const at::Tensor&) {
  const at::ScalarType dtype = in.queries.scalar_type();
  return {EmptySym(in.queries, dtype), EmptySym(in.keys, dtype),
          EmptySym(in.values, dtype), EmptySym(in.position_bias, dtype)};
}

Results Dispatch(const Call& in) {
  static const auto handle = FindOp<Signature>("tarn::aft_full");
  return handle.call(in.queries, in.keys, in.values, in.position_bias,
                     in.masks.causal, in.masks.causal_offset,
                     in.masks.attention_mask, in.masks.key_mask,
                     in.masks.key_lengths);
}

struct AftFullFunction : public torch::autograd::Function<AftFullFunction> {
  static constexpr bool is_traceable = true;

  static variable_list forward(AutogradContext* ctx, const at::Tensor&,
                               const at::Tensor&, const at::Tensor&,
                               const at::Tensor&, const Call& in) {
    at::AutoDispatchBelowADInplaceOrView guard;
    const auto [out, average, normaliser] = Dispatch(in);
    ctx->save_for_backward(
        {in.queries, in.keys, in.values, in.position_bias,
         UndefinedOr(in.masks.attention_mask), UndefinedOr(in.masks.key_mask),
         UndefinedOr(in.masks.key_lengths), average, normaliser});
    ctx->saved_data["causal"] = in.masks.causal;
    ctx->saved_data["causal_offset"] = in.masks.causal_offset;
    ctx->set_materialize_grads(false);
    ctx->mark_non_differentiable({average, normaliser});
    return {out, average, normaliser};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    if (!grads[0].defined()) return variable_list(5);
    const variable_list saved = ctx->get_saved_variables();
    static const auto handle =
        FindOp<BackwardSignature>("tarn::aft_full_backward");
    const auto [q, k, v, w] = handle.call(
        saved[0], saved[1], saved[2], saved[3],
        ctx->saved_data["causal"].toBool(),
        ctx->saved_data["causal_offset"].toSymInt(), NoneOr(saved[4]),
        NoneOr(saved[5]), NoneOr(saved[6]), saved[7], saved[8], grads[0]);
    return {q, k, v, w, at::Tensor()};
  }
};

Results ForwardAutograd(const Call& in) {
  WithTorchErrors([&] { Check(in); });
  if (!WantsGradient(in.queries, in.keys, in.values, in.position_bias)) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return Dispatch(in);
  }
  const variable_list r = AftFullFunction::apply(in.queries, in.keys, in.values,
                                                 in.position_bias, in);
  return {r[0], r[1], r[2]};
}

Call FromFlat(const at::Tensor& queries, const at::Tensor& keys,
              const at::Tensor& values, const at::Tensor& position_bias,
              bool causal, c10::SymInt causal_offset,
              const OptionalTensor& attention_mask,
              const OptionalTensor& key_mask,
              const OptionalTensor& key_lengths) {
  return {queries,
          keys,
          values,
          position_bias,
          {causal, std::move(causal_offset), attention_mask, key_mask,
           key_lengths}};
}

template <Results (*kForward)(const Call&)>
Results Flat(const at::Tensor& queries, const at::Tensor& keys,
             const at::Tensor& values, const at::Tensor& position_bias,
             bool causal, c10::SymInt causal_offset,
             const OptionalTensor& attention_mask,
             const OptionalTensor& key_mask,
             const OptionalTensor& key_lengths) {
  return kForward(FromFlat(queries, keys, values, position_bias, causal,
                           std::move(causal_offset), attention_mask, key_mask,
                           key_lengths));
}

template <Gradients (*kBackward)(const Call&, const at::Tensor&,
                                 const at::Tensor&, const at::Tensor&)>
Gradients FlatBackward(
    const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
    const at::Tensor& position_bias, bool causal, c10::SymInt causal_offset,
    const OptionalTensor& attention_mask, const OptionalTensor& key_mask,
    const OptionalTensor& key_lengths, const at::Tensor& average,
    const at::Tensor& normaliser, const at::Tensor& grad_out) {
  return kBackward(
      FromFlat(queries, keys, values, position_bias, causal,
               std::move(causal_offset), attention_mask, key_mask, key_lengths),
      average, normaliser, grad_out);
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def(
      "aft_full(Tensor queries, Tensor keys, Tensor values, "
      "Tensor position_bias, bool causal=False, SymInt causal_offset=0, "
      "Tensor? attention_mask=None, Tensor? key_mask=None, "
      "Tensor? key_lengths=None) -> "
      "(Tensor out, Tensor average, Tensor normaliser)");
  m.def(
      "aft_full_backward(Tensor queries, Tensor keys, Tensor values, "
      "Tensor position_bias, bool causal, SymInt causal_offset, "
      "Tensor? attention_mask, Tensor? key_mask, Tensor? key_lengths, "
      "Tensor average, Tensor normaliser, Tensor grad_out) -> "
      "(Tensor grad_queries, Tensor grad_keys, Tensor grad_values, "
      "Tensor grad_position_bias)");
}
// Torch's operators on every device.
TORCH_LIBRARY_IMPL(tarn, CompositeExplicitAutograd, m) {
  m.impl("aft_full", TORCH_FN(Flat<&Forward>));
  m.impl("aft_full_backward", TORCH_FN(FlatBackward<&Backward>));
}
TORCH_LIBRARY_IMPL(tarn, Meta, m) {
  m.impl("aft_full", TORCH_FN(Flat<&ForwardMeta>));
  m.impl("aft_full_backward", TORCH_FN(FlatBackward<&BackwardMeta>));
}
TORCH_LIBRARY_IMPL(tarn, Autograd, m) {
  m.impl("aft_full", TORCH_FN(Flat<&ForwardAutograd>));
  m.impl("aft_full_backward",
         torch::autograd::autogradNotImplementedFallback());
}

}  // namespace
}  // namespace aft_full

at::Tensor AftFull(const at::Tensor& queries, const at::Tensor& keys,
                   const at::Tensor& values, const at::Tensor& position_bias,
                   const AttentionMasks& masks) {
  return std::get<0>(
      aft_full::Dispatch({queries, keys, values, position_bias, masks}));
}

}  // namespace tarn::ops
