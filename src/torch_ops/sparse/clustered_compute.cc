#include "torch_ops/sparse/clustered_compute.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

#include "torch_ops/layers/call.h"
#include "torch_ops/sparse/call.h"

namespace tarn::ops {
namespace {

// Softmax over the last axis where `allowed`; zeros, and zero gradients, in
// rows that allow nothing.
at::Tensor AllowedSoftmax(const at::Tensor& scores, const at::Tensor& allowed) {
  if (!allowed.defined()) return at::softmax(scores, -1);
  const at::Tensor weights =
      at::softmax(scores.masked_fill(allowed.logical_not(),
                                     -std::numeric_limits<double>::infinity()),
                  -1);
  return weights.masked_fill(allowed.any(-1, /*keepdim=*/true).logical_not(),
                             0.0);
}

// [B, T, H, X] -> [B, H, T, X].
at::Tensor ByHead(const at::Tensor& x) {
  return x.transpose(1, 2).contiguous();
}

// One call: [B, H, ...] tensors, C clusters and one more for padding.
class Clustered {
 public:
  Clustered(const ClusteredPlan& plan, const at::Tensor& queries,
            const at::Tensor& keys, const at::Tensor& values)
      : plan_(plan),
        valid_(plan.cluster >= 0),
        cluster_(plan.cluster.masked_fill(valid_.logical_not(), plan.clusters)),
        // Padded queries and masked keys and values are zeros from here on.
        queries_(ByHead(queries.to(ComputeType(queries)))
                     .masked_fill(valid_.logical_not().unsqueeze(-1), 0.0)),
        keys_(ByHead(Skip(keys, plan.kept))),
        values_(ByHead(Skip(values, plan.kept))) {
    if (plan.kind == ClusteredKind::kCausalImproved) SetNotFiniteAside();
  }

  at::Tensor Run() {
    Score();
    at::Tensor out;
    switch (plan_.kind) {
      case ClusteredKind::kClustered:
        out = Spread(at::matmul(Drop(AllowedSoftmax(scores_, kept_)), values_));
        break;
      case ClusteredKind::kImproved:
        out = Improved();
        break;
      case ClusteredKind::kCausalImproved:
        FindTopKeys();
        out = TopPart(/*causal=*/true, /*share=*/{});
        break;
    }
    return out.transpose(1, 2);
  }

 private:
  // NaN and infinity become 0, so that no product with a weight of 0 brings
  // them to an earlier row; rows that read them are made NaN at the end. (In
  // the other kinds every query reads every kept key.)
  void SetNotFiniteAside() {
    const at::Tensor query = NotFiniteRows(queries_);
    const at::Tensor key =
        NotFiniteRows(keys_).logical_or(NotFiniteRows(values_));
    if (!query.any().item<bool>() && !key.any().item<bool>()) return;
    not_finite_query_ = query;
    not_finite_key_ = key;
    queries_ = FiniteOrZero(queries_);
    keys_ = FiniteOrZero(keys_);
    values_ = FiniteOrZero(values_);
  }

  // scores [B, H, C, S] of the mean query of every cluster.
  void Score() {
    const int64_t batch = queries_.size(0), heads = queries_.size(1);
    const int64_t d_key = queries_.size(3);
    members_ = at::zeros({batch, heads, plan_.clusters + 1}, cluster_.options())
                   .scatter_add(2, cluster_, at::ones_like(cluster_))
                   .slice(2, 0, plan_.clusters)
                   .contiguous();
    const at::Tensor sums =
        at::zeros({batch, heads, plan_.clusters + 1, d_key}, queries_.options())
            .scatter_add(2, cluster_.unsqueeze(-1).expand(queries_.sizes()),
                         queries_)
            .slice(2, 0, plan_.clusters);
    const at::Tensor means =
        sums / members_.clamp_min(1).unsqueeze(-1).to(sums.scalar_type());
    scores_ = at::matmul(means * plan_.softmax_temp, keys_.transpose(2, 3));
    if (plan_.kept.defined()) kept_ = plan_.kept.unsqueeze(1).unsqueeze(1);
  }

  at::Tensor Drop(const at::Tensor& weights) const {
    return ComposedDropout(weights, plan_.dropout.probability,
                           plan_.dropout.seed);
  }

  // One row a cluster [B, H, C, X] to one a query [B, H, T, X]; 0 in padding.
  at::Tensor Spread(const at::Tensor& rows) const {
    const at::Tensor padding = at::zeros(
        {rows.size(0), rows.size(1), 1, rows.size(3)}, rows.options());
    return at::cat({rows, padding}, 2)
        .gather(
            2, cluster_.unsqueeze(-1).expand({rows.size(0), rows.size(1),
                                              cluster_.size(2), rows.size(3)}));
  }

  void FindTopKeys() {
    top_ = TopKeys(scores_, plan_.kept, members_, plan_.topk);
  }

  // m_c softmax over T_c by each query, w_c for the other keys.
  at::Tensor Improved() {
    FindTopKeys();
    const at::Tensor weights = AllowedSoftmax(scores_, kept_);
    // Places of T_c beyond the kept keys have weight 0.
    const at::Tensor share = weights.gather(3, top_).sum(-1);
    const at::Tensor tail = weights.scatter(3, top_, 0.0);
    return Spread(at::matmul(Drop(tail), values_)) +
           TopPart(/*causal=*/false, share);
  }

  // Queries against the keys of their cluster [B, H, T, V]: softmax over T_c,
  // times `share` [B, H, C] where defined.
  at::Tensor TopPart(bool causal, const at::Tensor& share) const {
    const int64_t seq_len = queries_.size(2), slots = top_.size(3);
    const auto shape = [&](const at::Tensor& x) {
      return x.reshape({x.size(0) * x.size(1) * x.size(2), x.size(3)});
    };
    const ClusterGroups groups = GroupByCluster(plan_.cluster, plan_.clusters);
    const int64_t count = groups.cluster.size(0);
    if (count == 0 || slots == 0) {
      return at::zeros(
          {queries_.size(0), queries_.size(1), seq_len, values_.size(3)},
          values_.options());
    }
    // [G, slots] keys of each group, then as rows of [B H S].
    const at::Tensor keys = shape(top_).index_select(0, groups.cluster);
    const at::Tensor plane = groups.cluster.floor_divide(plan_.clusters);
    const at::Tensor rows =
        (keys + plane.unsqueeze(1) * keys_.size(2)).reshape({-1});
    const auto gather = [&](const at::Tensor& x) {
      return shape(x).index_select(0, rows).view({count, slots, x.size(3)});
    };
    const at::Tensor queries = shape(queries_)
                                   .index_select(0, groups.rows)
                                   .view({count, kGroupRows, -1});
    const at::Tensor allowed = Allowed(groups, keys, plane, causal);
    at::Tensor weights = AllowedSoftmax(
        at::bmm(queries * plan_.softmax_temp, gather(keys_).transpose(1, 2)),
        allowed);
    if (share.defined()) {
      weights = weights * share.reshape({-1})
                              .index_select(0, groups.cluster)
                              .view({count, 1, 1});
    }
    const at::Tensor out = at::bmm(DropTop(weights), gather(values_))
                               .view({count * kGroupRows, values_.size(3)})
                               .index_select(0, groups.place)
                               .view({queries_.size(0), queries_.size(1),
                                      seq_len, values_.size(3)});
    const at::Tensor kept =
        out.masked_fill(valid_.logical_not().unsqueeze(-1), 0.0);
    if (!not_finite_key_.defined()) return kept;
    const at::Tensor pairs = gather(not_finite_key_)
                                 .transpose(1, 2)
                                 .logical_or(shape(not_finite_query_)
                                                 .index_select(0, groups.rows)
                                                 .view({count, kGroupRows, 1}));
    const at::Tensor spoiled = allowed.logical_and(pairs)
                                   .any(-1)
                                   .reshape({-1})
                                   .index_select(0, groups.place)
                                   .view(valid_.sizes())
                                   .logical_and(valid_)
                                   .unsqueeze(-1);
    return SpoilRows(kept, queries_, spoiled);
  }

  // [G, 1 or 32, slots] of keys that are kept and, if causal, not later.
  at::Tensor Allowed(const ClusterGroups& groups, const at::Tensor& keys,
                     const at::Tensor& plane, bool causal) const {
    at::Tensor allowed;
    if (plan_.kept.defined()) {
      const at::Tensor batch = plane.floor_divide(queries_.size(1));
      allowed = plan_.kept.index_select(0, batch).gather(1, keys).unsqueeze(1);
    }
    if (!causal) return allowed;
    const at::Tensor position =
        groups.rows.remainder(queries_.size(2)).view({-1, kGroupRows, 1});
    const at::Tensor before = keys.unsqueeze(1) <= position;
    return allowed.defined() ? allowed.logical_and(before) : before;
  }

  // Uses another seed than the weights that a cluster shares.
  at::Tensor DropTop(const at::Tensor& weights) const {
    if (plan_.dropout.probability == 0.0) return weights;
    return ComposedDropout(weights, plan_.dropout.probability,
                           *plan_.dropout.seed + 1);
  }

  const ClusteredPlan& plan_;
  at::Tensor valid_, cluster_;          // [B, H, T]
  at::Tensor queries_, keys_, values_;  // [B, H, T or S, K or V]
  at::Tensor members_, scores_, kept_, top_;
  at::Tensor not_finite_query_, not_finite_key_;  // [B, H, T or S, 1] bool
};

}  // namespace

at::Tensor ComputeClustered(const ClusteredPlan& plan,
                            const at::Tensor& queries, const at::Tensor& keys,
                            const at::Tensor& values) {
  return Clustered(plan, queries, keys, values).Run();
}

}  // namespace tarn::ops
