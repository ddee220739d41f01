// torch.ops.tarn.reformer_attention: buckets are decided once, in the forward
// pass; the gradient recomputes the rest on them.
#include "torch_ops/sparse/reformer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>

#include "torch_ops/common/rows.h"
#include "torch_ops/sparse/call.h"
#include "torch_ops/sparse/hash.h"
#include "torch_ops/sparse/reformer_compute.h"

namespace tarn::ops {
namespace reformer {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Results = std::tuple<at::Tensor, at::Tensor>;
using Gradients = std::tuple<at::Tensor, at::Tensor>;
using Signature = Results(const at::Tensor&, const at::Tensor&, int64_t,
                          int64_t, int64_t, bool, bool, bool, bool, c10::SymInt,
                          const OptionalTensor&, const OptionalTensor&,
                          const OptionalTensor&, std::optional<double>, double,
                          const OptionalTensor&, int64_t);
using BackwardSignature = Gradients(
    const at::Tensor&, const at::Tensor&, int64_t, int64_t, int64_t, bool, bool,
    bool, bool, c10::SymInt, const OptionalTensor&, const OptionalTensor&,
    const OptionalTensor&, std::optional<double>, double, const OptionalTensor&,
    const at::Tensor&, const at::Tensor&);

constexpr char kOp[] = "reformer_attention";

struct Call {
  at::Tensor queries, values;
  AttentionMasks masks;
  ReformerOptions options;
};

void Check(const Call& in) {
  const ReformerOptions& o = in.options;
  const std::pair<const char*, int64_t> counts[] = {
      {"chunk_size", o.chunk_size}, {"rounds", o.rounds}};
  for (const auto& [name, value] : counts) {
    if (value < 1) {
      throw ArgumentError(StrCat(kOp, ": ", name), "at least 1",
                          std::to_string(value));
    }
  }
  if (o.bits < 1 || o.bits > kMaxHashBits) {
    throw ArgumentError(StrCat(kOp, ": bits"), StrCat("1 to ", kMaxHashBits),
                        std::to_string(o.bits));
  }
  if (o.softmax_temp.has_value() && !std::isfinite(*o.softmax_temp)) {
    throw ArgumentError(StrCat(kOp, ": softmax_temp"), "a finite number",
                        StrCat(*o.softmax_temp));
  }
  CheckOperands(kOp, in.queries, in.queries, in.values);
  CheckAttentionMasks(kOp, in.masks, in.queries, in.queries);
  DropoutOptions range;
  range.probability = o.dropout.probability;
  (void)MakeDropoutKey(range);
  if (o.dropout.probability > 0.0 && !o.dropout.seed.has_value()) {
    throw ArgumentError(StrCat(kOp, ": seed"), "a tensor with dropout > 0",
                        "none");
  }
}

ReformerPlan Plan(const Call& in) {
  const int64_t seq_len = in.queries.size(1);
  ReformerPlan plan;
  plan.options = in.options;
  plan.softmax_temp = in.options.softmax_temp.value_or(
      1.0 / std::sqrt(static_cast<double>(in.queries.size(3))));
  plan.causal = in.masks.causal;
  plan.causal_offset = std::clamp<int64_t>(in.masks.causal_offset.expect_int(),
                                           -seq_len, seq_len);
  if (in.masks.attention_mask.has_value()) {
    plan.attention_mask = *in.masks.attention_mask;
  }
  plan.kept = KeptPositions(in.masks.key_mask, in.masks.key_lengths, seq_len);
  return plan;
}

// A part of a call: rows of the batch, and some of their heads.
struct Part {
  int64_t row, rows, head, heads;
  at::Tensor Of(const at::Tensor& x) const {  // [B, T, H, ...]
    return x.narrow(0, row, rows).narrow(2, head, heads);
  }
};

// The plan of a part; each row draws its own dropout.
ReformerPlan PlanOf(const ReformerPlan& plan, const Part& part) {
  ReformerPlan found = plan;
  found.buckets = plan.buckets.narrow(0, part.row, part.rows)
                      .narrow(1, part.head, part.heads);
  if (plan.kept.defined()) {
    found.kept = plan.kept.narrow(0, part.row, part.rows);
  }
  at::Tensor& mask = found.attention_mask;
  if (mask.defined() && mask.dim() == 4 && mask.size(0) > 1) {
    mask = mask.narrow(0, part.row, part.rows);
  }
  if (mask.defined() && mask.dim() >= 3 && mask.size(mask.dim() - 3) > 1) {
    mask = mask.narrow(mask.dim() - 3, part.head, part.heads);
  }
  if (plan.options.dropout.probability > 0.0) {
    found.options.dropout.seed =
        *plan.options.dropout.seed + part.row * plan.options.rounds;
  }
  return found;
}

// f(part) over the call, in parts whose tensors fit the caches; the smallest is
// one head of a long row. Dropout is drawn for whole rows, which stay whole.
template <typename F>
void ForCallParts(const Call& in, const F& f) {
  const int64_t seq_len = in.queries.size(1), heads = in.queries.size(2);
  const int64_t pairs = seq_len * in.options.rounds * 2 *
                        std::min(in.options.chunk_size, seq_len);
  const bool whole =
      in.options.dropout.probability > 0.0 || pairs * heads <= kPartElements;
  ForParts(in.queries.size(0), pairs * heads, [&](int64_t row, int64_t end) {
    if (whole) return f(Part{row, end - row, 0, heads});
    ForParts(heads, pairs, [&](int64_t head, int64_t last) {
      f(Part{row, end - row, head, last - head});
    });
  });
}

Results Forward(const Call& in) {
  return WithTorchErrors([&]() -> Results {
    Check(in);
    ReformerPlan plan = Plan(in);
    plan.buckets =
        HashBuckets(ReformerQueries(in.queries, plan.kept).contiguous(),
                    in.options.bits, in.options.rounds, in.options.hash_seed);
    const at::Tensor out = at::empty(in.values.sizes(), in.values.options());
    ForCallParts(in, [&](const Part& part) {
      part.Of(out).copy_(ComputeReformer(
          PlanOf(plan, part), part.Of(in.queries), part.Of(in.values)));
    });
    return {out, plan.buckets};
  });
}

Gradients Backward(const Call& in, const at::Tensor& buckets,
                   const at::Tensor& grad_out) {
  return WithTorchErrors([&]() -> Gradients {
    Check(in);
    ReformerPlan plan = Plan(in);
    plan.buckets = buckets.contiguous();
    const Gradients results = {
        at::empty(in.queries.sizes(), in.queries.options()),
        at::empty(in.values.sizes(), in.values.options())};
    const at::Tensor grad = grad_out.to(ComputeType(in.queries));
    ForCallParts(in, [&](const Part& part) {
      const ReformerPlan plan_of = PlanOf(plan, part);
      const auto gradients = RecomputedGradients(
          {part.Of(in.queries), part.Of(in.values)}, part.Of(grad),
          [&](const std::vector<at::Tensor>& x) {
            return ComputeReformer(plan_of, x[0], x[1]);
          });
      part.Of(std::get<0>(results)).copy_(gradients[0]);
      part.Of(std::get<1>(results)).copy_(gradients[1]);
    });
    return results;
  });
}

// The output on decided buckets, which autograd follows to any order.
at::Tensor Differentiable(const Call& in, const at::Tensor& buckets) {
  return WithTorchErrors([&] {
    ReformerPlan plan = Plan(in);
    plan.buckets = buckets.contiguous();
    const at::Tensor out = at::empty(in.values.sizes(), in.values.options());
    ForCallParts(in, [&](const Part& part) {
      part.Of(out).copy_(ComputeReformer(
          PlanOf(plan, part), part.Of(in.queries), part.Of(in.values)));
    });
    return out;
  });
}

Results ForwardMeta(const Call& in) {
  return WithTorchErrors([&]() -> Results {
    Check(in);
    const at::Tensor& q = in.queries;
    return {at::empty_symint(in.values.sym_sizes(), in.values.options()),
            at::empty_symint({q.sym_size(0), q.sym_size(2), in.options.rounds,
                              q.sym_size(1)},
                             q.options().dtype(at::kInt))};
  });
}

Gradients BackwardMeta(const Call& in, const at::Tensor&, const at::Tensor&) {
  const auto like = [](const at::Tensor& x) {
    return at::empty_symint(x.sym_sizes(), x.options());
  };
  return {like(in.queries), like(in.values)};
}

Results Dispatch(const Call& in) {
  static const auto handle = FindOp<Signature>("tarn::reformer_attention");
  const ReformerOptions& o = in.options;
  return handle.call(in.queries, in.values, o.chunk_size, o.bits, o.rounds,
                     o.masked, o.same_bucket, o.compat, in.masks.causal,
                     in.masks.causal_offset, in.masks.attention_mask,
                     in.masks.key_mask, in.masks.key_lengths, o.softmax_temp,
                     o.dropout.probability, o.dropout.seed, o.hash_seed);
}

struct ReformerFunction : public torch::autograd::Function<ReformerFunction> {
  static constexpr bool is_traceable = true;

  static variable_list forward(AutogradContext* ctx, const at::Tensor&,
                               const at::Tensor&, const Call& in) {
    at::AutoDispatchBelowADInplaceOrView guard;
    const auto [out, buckets] = Dispatch(in);
    const ReformerOptions& o = in.options;
    ctx->save_for_backward(
        {in.queries, in.values, UndefinedOr(in.masks.attention_mask),
         UndefinedOr(in.masks.key_mask), UndefinedOr(in.masks.key_lengths),
         UndefinedOr(o.dropout.seed), buckets});
    auto& data = ctx->saved_data;
    data["chunk_size"] = o.chunk_size;
    data["bits"] = o.bits;
    data["rounds"] = o.rounds;
    data["masked"] = o.masked;
    data["same_bucket"] = o.same_bucket;
    data["compat"] = o.compat;
    data["causal"] = in.masks.causal;
    data["causal_offset"] = in.masks.causal_offset;
    data["softmax_temp"] = o.softmax_temp;
    data["dropout"] = o.dropout.probability;
    ctx->set_materialize_grads(false);
    ctx->mark_non_differentiable({buckets});
    return {out, buckets};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    if (!grads[0].defined()) return variable_list(3);
    const variable_list saved = ctx->get_saved_variables();
    auto& data = ctx->saved_data;
    if (at::GradMode::is_enabled()) {  // the gradient may be differentiated
      Call in;
      in.options.chunk_size = data["chunk_size"].toInt();
      in.options.bits = data["bits"].toInt();
      in.options.rounds = data["rounds"].toInt();
      in.options.masked = data["masked"].toBool();
      in.options.same_bucket = data["same_bucket"].toBool();
      in.options.compat = data["compat"].toBool();
      in.options.softmax_temp = data["softmax_temp"].toOptional<double>();
      in.options.dropout = {data["dropout"].toDouble(), NoneOr(saved[5])};
      in.masks = {data["causal"].toBool(), data["causal_offset"].toSymInt(),
                  NoneOr(saved[2]), NoneOr(saved[3]), NoneOr(saved[4])};
      variable_list found = ComposedGradients(
          {saved[0], saved[1]}, grads, [&](const variable_list& x) {
            in.queries = x[0];
            in.values = x[1];
            return variable_list{Differentiable(in, saved[6])};
          });
      found.resize(3);
      return found;
    }
    static const auto handle =
        FindGradientOp<BackwardSignature>("tarn::reformer_attention_backward");
    const auto [q, v] = handle.call(
        saved[0], saved[1], data["chunk_size"].toInt(), data["bits"].toInt(),
        data["rounds"].toInt(), data["masked"].toBool(),
        data["same_bucket"].toBool(), data["compat"].toBool(),
        data["causal"].toBool(), data["causal_offset"].toSymInt(),
        NoneOr(saved[2]), NoneOr(saved[3]), NoneOr(saved[4]),
        data["softmax_temp"].toOptional<double>(), data["dropout"].toDouble(),
        NoneOr(saved[5]), saved[6], grads[0]);
    return {q, v, at::Tensor()};
  }
};

Results ForwardAutograd(const Call& in) {
  WithTorchErrors([&] { Check(in); });
  if (!WantsGradient(in.queries, in.values)) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return Dispatch(in);
  }
  const variable_list r = ReformerFunction::apply(in.queries, in.values, in);
  return {r[0], r[1]};
}

template <Results (*kForward)(const Call&)>
Results Flat(const at::Tensor& queries, const at::Tensor& values,
             int64_t chunk_size, int64_t bits, int64_t rounds, bool masked,
             bool same_bucket, bool compat, bool causal,
             c10::SymInt causal_offset, const OptionalTensor& attention_mask,
             const OptionalTensor& key_mask, const OptionalTensor& key_lengths,
             std::optional<double> softmax_temp, double dropout,
             const OptionalTensor& seed, int64_t hash_seed) {
  return kForward({queries,
                   values,
                   {causal, std::move(causal_offset), attention_mask, key_mask,
                    key_lengths},
                   {chunk_size,
                    bits,
                    rounds,
                    masked,
                    same_bucket,
                    compat,
                    softmax_temp,
                    {dropout, seed},
                    hash_seed}});
}

template <Gradients (*kBackward)(const Call&, const at::Tensor&,
                                 const at::Tensor&)>
Gradients FlatBackward(const at::Tensor& queries, const at::Tensor& values,
                       int64_t chunk_size, int64_t bits, int64_t rounds,
                       bool masked, bool same_bucket, bool compat, bool causal,
                       c10::SymInt causal_offset,
                       const OptionalTensor& attention_mask,
                       const OptionalTensor& key_mask,
                       const OptionalTensor& key_lengths,
                       std::optional<double> softmax_temp, double dropout,
                       const OptionalTensor& seed, const at::Tensor& buckets,
                       const at::Tensor& grad_out) {
  return kBackward({queries,
                    values,
                    {causal, std::move(causal_offset), attention_mask, key_mask,
                     key_lengths},
                    {chunk_size,
                     bits,
                     rounds,
                     masked,
                     same_bucket,
                     compat,
                     softmax_temp,
                     {dropout, seed},
                     0}},
                   buckets, grad_out);
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def(
      "reformer_attention(Tensor queries, Tensor values, int chunk_size=32, "
      "int bits=63, int rounds=4, bool masked=False, bool same_bucket=False, "
      "bool compat=False, bool causal=False, SymInt causal_offset=0, "
      "Tensor? attention_mask=None, Tensor? key_mask=None, "
      "Tensor? key_lengths=None, float? softmax_temp=None, float dropout=0.0, "
      "Tensor? seed=None, int hash_seed=0) -> (Tensor out, Tensor buckets)");
  m.def(
      "reformer_attention_backward(Tensor queries, Tensor values, "
      "int chunk_size, int bits, int rounds, bool masked, bool same_bucket, "
      "bool compat, bool causal, SymInt causal_offset, Tensor? attention_mask, "
      "Tensor? key_mask, Tensor? key_lengths, float? softmax_temp, "
      "float dropout, Tensor? seed, Tensor buckets, Tensor grad_out) -> "
      "(Tensor grad_queries, Tensor grad_values)");
}
// Torch's operators on every device; which positions meet is decided on the
// CPU.
TORCH_LIBRARY_IMPL(tarn, CompositeExplicitAutograd, m) {
  m.impl("reformer_attention", TORCH_FN(Flat<&Forward>));
  m.impl("reformer_attention_backward", TORCH_FN(FlatBackward<&Backward>));
}
TORCH_LIBRARY_IMPL(tarn, Meta, m) {
  m.impl("reformer_attention", TORCH_FN(Flat<&ForwardMeta>));
  m.impl("reformer_attention_backward", TORCH_FN(FlatBackward<&BackwardMeta>));
}
TORCH_LIBRARY_IMPL(tarn, Autograd, m) {
  m.impl("reformer_attention", TORCH_FN(Flat<&ForwardAutograd>));
  m.impl("reformer_attention_backward",
         torch::autograd::autogradNotImplementedFallback());
}

}  // namespace
}  // namespace reformer

at::Tensor ReformerAttention(const at::Tensor& queries,
                             const at::Tensor& values,
                             const AttentionMasks& masks,
                             const ReformerOptions& options) {
  return std::get<0>(reformer::Dispatch({queries, values, masks, options}));
}

}  // namespace tarn::ops
