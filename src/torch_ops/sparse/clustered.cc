// torch.ops.tarn.clustered_attention: clusters are decided once, in the forward
// pass; the gradient recomputes the rest on them.
#include "torch_ops/sparse/clustered.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>

#include "torch_ops/common/rows.h"
#include "torch_ops/sparse/call.h"
#include "torch_ops/sparse/clustered_compute.h"
#include "torch_ops/sparse/hash.h"

namespace tarn::ops {
namespace clustered {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Results = std::tuple<at::Tensor, at::Tensor>;
using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using Signature = Results(const at::Tensor&, const at::Tensor&,
                          const at::Tensor&, c10::string_view, int64_t, int64_t,
                          int64_t, bool, int64_t, const OptionalTensor&,
                          const OptionalTensor&, const OptionalTensor&,
                          std::optional<double>, double, const OptionalTensor&,
                          int64_t);
using BackwardSignature = Gradients(const at::Tensor&, const at::Tensor&,
                                    const at::Tensor&, c10::string_view,
                                    int64_t, int64_t, const OptionalTensor&,
                                    const OptionalTensor&,
                                    std::optional<double>, double,
                                    const OptionalTensor&, const at::Tensor&,
                                    const at::Tensor&);

constexpr char kOp[] = "clustered_attention";
constexpr const char* kKinds[] = {"clustered", "improved", "causal-improved"};

struct Call {
  at::Tensor queries, keys, values;
  std::string kind;
  ClusteredOptions options;
};

ClusteredKind ParseKind(const std::string& kind) {
  for (int i = 0; i < 3; ++i) {
    if (kind == kKinds[i]) return static_cast<ClusteredKind>(i);
  }
  throw ArgumentError(StrCat(kOp, ": kind"),
                      "one of clustered, improved, causal-improved", kind);
}

void WantAtLeastOne(const char* name, int64_t value) {
  if (value >= 1) return;
  throw ArgumentError(StrCat(kOp, ": ", name), "at least 1",
                      std::to_string(value));
}

void Check(const Call& in) {
  const ClusteredOptions& o = in.options;
  (void)ParseKind(in.kind);
  WantAtLeastOne("clusters", o.clusters);
  WantAtLeastOne("iterations", o.iterations);
  WantAtLeastOne("topk", o.topk);
  if (o.bits < 1 || o.bits > kMaxHashBits) {
    throw ArgumentError(StrCat(kOp, ": bits"), StrCat("1 to ", kMaxHashBits),
                        std::to_string(o.bits));
  }
  if (o.softmax_temp.has_value() && !std::isfinite(*o.softmax_temp)) {
    throw ArgumentError(StrCat(kOp, ": softmax_temp"), "a finite number",
                        StrCat(*o.softmax_temp));
  }
  CheckOperands(kOp, in.queries, in.keys, in.values);
  CheckLengths(kOp, "query_lengths", o.query_lengths, in.queries,
               in.queries.sym_size(1));
  AttentionMasks masks;
  masks.key_mask = o.key_mask;
  masks.key_lengths = o.key_lengths;
  CheckAttentionMasks(kOp, masks, in.queries, in.keys);
  DropoutOptions range;
  range.probability = o.dropout.probability;
  (void)MakeDropoutKey(range);
  if (o.dropout.probability > 0.0 && !o.dropout.seed.has_value()) {
    throw ArgumentError(StrCat(kOp, ": seed"), "a tensor with dropout > 0",
                        "none");
  }
}

ClusteredPlan Plan(const Call& in, const at::Tensor& cluster) {
  const ClusteredOptions& o = in.options;
  ClusteredPlan plan;
  plan.kind = ParseKind(in.kind);
  // No more clusters than queries can be used.
  plan.clusters =
      std::min(o.clusters, std::max<int64_t>(1, in.queries.size(1)));
  plan.topk = o.topk;
  plan.softmax_temp = o.softmax_temp.value_or(
      1.0 / std::sqrt(static_cast<double>(in.queries.size(3))));
  plan.dropout = o.dropout;
  plan.cluster = cluster;
  plan.kept = KeptPositions(o.key_mask, o.key_lengths, in.keys.size(1));
  return plan;
}

// Rows [begin, end) of the batch; each row draws its own dropout.
ClusteredPlan RowsOf(const ClusteredPlan& plan, int64_t begin, int64_t end) {
  ClusteredPlan rows = plan;
  rows.cluster = plan.cluster.slice(0, begin, end);
  if (plan.kept.defined()) rows.kept = plan.kept.slice(0, begin, end);
  if (plan.dropout.probability > 0.0) {
    rows.dropout.seed = *plan.dropout.seed + 2 * begin;
  }
  return rows;
}

// Scores that one batch row holds: clusters x keys, and queries x topk.
int64_t ScoresOfRow(const Call& in, const ClusteredPlan& plan) {
  const int64_t keys = in.keys.size(1);
  return in.queries.size(2) * (plan.clusters * keys +
                               in.queries.size(1) * std::min(plan.topk, keys));
}

Results Forward(const Call& in) {
  return WithTorchErrors([&]() -> Results {
    Check(in);
    const ClusteredOptions& o = in.options;
    at::Tensor lengths;
    if (o.query_lengths.has_value()) {
      lengths = o.query_lengths->to(at::kLong).contiguous();
    }
    const ClusteredPlan plan = Plan(
        in, ClusterQueries(
                in.queries.to(ComputeType(in.queries)).contiguous(), lengths,
                {o.clusters, o.iterations, o.bits, o.hash_bias, o.hash_seed}));
    const at::Tensor &q = in.queries, &v = in.values;
    const at::Tensor out =
        at::empty({q.size(0), q.size(1), q.size(2), v.size(3)}, q.options());
    ForParts(q.size(0), ScoresOfRow(in, plan), [&](int64_t begin, int64_t end) {
      out.slice(0, begin, end)
          .copy_(ComputeClustered(
              RowsOf(plan, begin, end), q.slice(0, begin, end),
              in.keys.slice(0, begin, end), v.slice(0, begin, end)));
    });
    return {out, plan.cluster};
  });
}

Gradients Backward(const Call& in, const at::Tensor& cluster,
                   const at::Tensor& grad_out) {
  return WithTorchErrors([&]() -> Gradients {
    Check(in);
    const ClusteredPlan plan = Plan(in, cluster.contiguous());
    const auto like = [](const at::Tensor& x) {
      return at::empty(x.sizes(), x.options());
    };
    const at::Tensor inputs[] = {in.queries, in.keys, in.values};
    const at::Tensor results[] = {like(in.queries), like(in.keys),
                                  like(in.values)};
    const at::Tensor grad = grad_out.to(ComputeType(in.queries));
    const auto run = [&](int64_t begin, int64_t end) {
      const ClusteredPlan rows = RowsOf(plan, begin, end);
      std::vector<at::Tensor> parts;
      for (const at::Tensor& x : inputs)
        parts.push_back(x.slice(0, begin, end));
      const auto gradients =
          RecomputedGradients(parts, grad.slice(0, begin, end),
                              [&](const std::vector<at::Tensor>& x) {
                                return ComputeClustered(rows, x[0], x[1], x[2]);
                              });
      for (size_t i = 0; i < 3; ++i) {
        results[i].slice(0, begin, end).copy_(gradients[i]);
      }
    };
    ForParts(grad.size(0), ScoresOfRow(in, plan), run);
    return {results[0], results[1], results[2]};
  });
}

// The output on decided clusters, which autograd follows to any order.
at::Tensor Differentiable(const Call& in, const at::Tensor& cluster) {
  return WithTorchErrors([&] {
    const ClusteredPlan plan = Plan(in, cluster.contiguous());
    std::vector<at::Tensor> outs;
    ForParts(in.queries.size(0), ScoresOfRow(in, plan),
             [&](int64_t begin, int64_t end) {
               outs.push_back(ComputeClustered(RowsOf(plan, begin, end),
                                               in.queries.slice(0, begin, end),
                                               in.keys.slice(0, begin, end),
                                               in.values.slice(0, begin, end)));
             });
    if (outs.empty()) return at::empty_like(in.values);  // no rows at all
    return at::cat(outs).to(in.queries.scalar_type());
  });
}

at::Tensor EmptySym(const at::Tensor& x) {
  return at::empty_symint(x.sym_sizes(), x.options());
}

Results ForwardMeta(const Call& in) {
  return WithTorchErrors([&]() -> Results {
    Check(in);
    const at::Tensor &q = in.queries, &v = in.values;
    return {at::empty_symint(
                {q.sym_size(0), q.sym_size(1), q.sym_size(2), v.sym_size(3)},
                q.options()),
            at::empty_symint({q.sym_size(0), q.sym_size(2), q.sym_size(1)},
                             q.options().dtype(at::kLong))};
  });
}

Gradients BackwardMeta(const Call& in, const at::Tensor&, const at::Tensor&) {
  return {EmptySym(in.queries), EmptySym(in.keys), EmptySym(in.values)};
}

Results Dispatch(const Call& in) {
  static const auto handle = FindOp<Signature>("tarn::clustered_attention");
  const ClusteredOptions& o = in.options;
  return handle.call(in.queries, in.keys, in.values, in.kind, o.clusters,
                     o.iterations, o.bits, o.hash_bias, o.topk, o.query_lengths,
                     o.key_mask, o.key_lengths, o.softmax_temp,
                     o.dropout.probability, o.dropout.seed, o.hash_seed);
}

struct ClusteredFunction : public torch::autograd::Function<ClusteredFunction> {
  static constexpr bool is_traceable = true;

  static variable_list forward(AutogradContext* ctx, const at::Tensor&,
                               const at::Tensor&, const at::Tensor&,
                               const Call& in) {
    at::AutoDispatchBelowADInplaceOrView guard;
    const auto [out, cluster] = Dispatch(in);
    const ClusteredOptions& o = in.options;
    ctx->save_for_backward({in.queries, in.keys, in.values,
                            UndefinedOr(o.key_mask), UndefinedOr(o.key_lengths),
                            UndefinedOr(o.dropout.seed), cluster});
    ctx->saved_data["kind"] = in.kind;
    ctx->saved_data["clusters"] = o.clusters;
    ctx->saved_data["topk"] = o.topk;
    ctx->saved_data["softmax_temp"] = o.softmax_temp;
    ctx->saved_data["dropout"] = o.dropout.probability;
    ctx->set_materialize_grads(false);
    ctx->mark_non_differentiable({cluster});
    return {out, cluster};
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    if (!grads[0].defined()) return variable_list(4);
    const variable_list saved = ctx->get_saved_variables();
    auto& data = ctx->saved_data;
    if (at::GradMode::is_enabled()) {  // the gradient may be differentiated
      Call in;
      in.kind = data["kind"].toStringRef();
      in.options.clusters = data["clusters"].toInt();
      in.options.topk = data["topk"].toInt();
      in.options.key_mask = NoneOr(saved[3]);
      in.options.key_lengths = NoneOr(saved[4]);
      in.options.softmax_temp = data["softmax_temp"].toOptional<double>();
      in.options.dropout = {data["dropout"].toDouble(), NoneOr(saved[5])};
      variable_list found = ComposedGradients(
          {saved[0], saved[1], saved[2]}, grads, [&](const variable_list& x) {
            in.queries = x[0];
            in.keys = x[1];
            in.values = x[2];
            return variable_list{Differentiable(in, saved[6])};
          });
      found.resize(4);
      return found;
    }
    static const auto handle =
        FindGradientOp<BackwardSignature>("tarn::clustered_attention_backward");
    const auto [q, k, v] = handle.call(
        saved[0], saved[1], saved[2], data["kind"].toStringRef(),
        data["clusters"].toInt(), data["topk"].toInt(), NoneOr(saved[3]),
        NoneOr(saved[4]), data["softmax_temp"].toOptional<double>(),
        data["dropout"].toDouble(), NoneOr(saved[5]), saved[6], grads[0]);
    return {q, k, v, at::Tensor()};
  }
};

Results ForwardAutograd(const Call& in) {
  WithTorchErrors([&] { Check(in); });
  if (!WantsGradient(in.queries, in.keys, in.values)) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return Dispatch(in);
  }
  const variable_list r =
      ClusteredFunction::apply(in.queries, in.keys, in.values, in);
  return {r[0], r[1]};
}

template <Results (*kForward)(const Call&)>
Results Flat(const at::Tensor& queries, const at::Tensor& keys,
             const at::Tensor& values, c10::string_view kind, int64_t clusters,
             int64_t iterations, int64_t bits, bool hash_bias, int64_t topk,
             const OptionalTensor& query_lengths,
             const OptionalTensor& key_mask, const OptionalTensor& key_lengths,
             std::optional<double> softmax_temp, double dropout,
             const OptionalTensor& seed, int64_t hash_seed) {
  return kForward({queries,
                   keys,
                   values,
                   std::string(kind),
                   {clusters,
                    iterations,
                    bits,
                    hash_bias,
                    topk,
                    query_lengths,
                    key_mask,
                    key_lengths,
                    softmax_temp,
                    {dropout, seed},
                    hash_seed}});
}

template <Gradients (*kBackward)(const Call&, const at::Tensor&,
                                 const at::Tensor&)>
Gradients FlatBackward(const at::Tensor& queries, const at::Tensor& keys,
                       const at::Tensor& values, c10::string_view kind,
                       int64_t clusters, int64_t topk,
                       const OptionalTensor& key_mask,
                       const OptionalTensor& key_lengths,
                       std::optional<double> softmax_temp, double dropout,
                       const OptionalTensor& seed, const at::Tensor& cluster,
                       const at::Tensor& grad_out) {
  ClusteredOptions options;
  options.clusters = clusters;
  options.topk = topk;
  options.key_mask = key_mask;
  options.key_lengths = key_lengths;
  options.softmax_temp = softmax_temp;
  options.dropout = {dropout, seed};
  return kBackward({queries, keys, values, std::string(kind), options}, cluster,
                   grad_out);
}

TORCH_LIBRARY_FRAGMENT(tarn, m) {
  m.def(
      "clustered_attention(Tensor queries, Tensor keys, Tensor values, "
      "str kind, int clusters, int iterations=10, int bits=63, "
      "bool hash_bias=True, int topk=32, Tensor? query_lengths=None, "
      "Tensor? key_mask=None, Tensor? key_lengths=None, "
      "float? softmax_temp=None, float dropout=0.0, Tensor? seed=None, "
      "int hash_seed=0) -> (Tensor out, Tensor cluster)");
  m.def(
      "clustered_attention_backward(Tensor queries, Tensor keys, "
      "Tensor values, str kind, int clusters, int topk, Tensor? key_mask, "
      "Tensor? key_lengths, float? softmax_temp, float dropout, Tensor? seed, "
      "Tensor cluster, Tensor grad_out) -> "
      "(Tensor grad_queries, Tensor grad_keys, Tensor grad_values)");
}
// Torch's operators on every device; which positions meet is decided on the
// CPU.
TORCH_LIBRARY_IMPL(tarn, CompositeExplicitAutograd, m) {
  m.impl("clustered_attention", TORCH_FN(Flat<&Forward>));
  m.impl("clustered_attention_backward", TORCH_FN(FlatBackward<&Backward>));
}
TORCH_LIBRARY_IMPL(tarn, Meta, m) {
  m.impl("clustered_attention", TORCH_FN(Flat<&ForwardMeta>));
  m.impl("clustered_attention_backward", TORCH_FN(FlatBackward<&BackwardMeta>));
}
TORCH_LIBRARY_IMPL(tarn, Autograd, m) {
  m.impl("clustered_attention", TORCH_FN(Flat<&ForwardAutograd>));
  m.impl("clustered_attention_backward",
         torch::autograd::autogradNotImplementedFallback());
}

}  // namespace
}  // namespace clustered

at::Tensor ClusteredAttention(const at::Tensor& queries, const at::Tensor& keys,
                              const at::Tensor& values,
                              const ClusteredOptions& options) {
  return std::get<0>(clustered::Dispatch(
      {queries, keys, values, clustered::kKinds[0], options}));
}

at::Tensor ImprovedClusteredAttention(const at::Tensor& queries,
                                      const at::Tensor& keys,
                                      const at::Tensor& values,
                                      const ClusteredOptions& options) {
  return std::get<0>(clustered::Dispatch(
      {queries, keys, values, clustered::kKinds[1], options}));
}

at::Tensor CausalImprovedClusteredAttention(const at::Tensor& queries,
                                            const at::Tensor& keys,
                                            const at::Tensor& values,
                                            const ClusteredOptions& options) {
  return std::get<0>(clustered::Dispatch(
      {queries, keys, values, clustered::kKinds[2], options}));
}

}  // namespace tarn::ops
