#include "torch_ops/sparse/reformer_compute.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <limits>
#include <vector>

#include "torch_ops/common/tensors.h"
#include "torch_ops/layers/call.h"
#include "torch_ops/sparse/call.h"
#include "torch_ops/sparse/reformer_window.h"

namespace tarn::ops {
namespace {

// q / |q| over the last axis, 0 for a zero vector. The largest entry is divided
// out first, so that squares neither overflow nor underflow; the result does
// not depend on it, so it takes no part in the gradient.
at::Tensor UnitVectors(const at::Tensor& q) {
  const at::Tensor largest = q.detach().abs().amax(-1, /*keepdim=*/true);
  const at::Tensor zero = largest == 0;
  const at::Tensor scaled = q / largest.masked_fill(zero, 1.0);
  const at::Tensor square =
      (scaled * scaled).sum(-1, /*keepdim=*/true).masked_fill(zero, 1.0);
  return scaled * square.rsqrt();
}

// What one round adds: sums over its window relative to exp(top), by position.
struct RoundSums {
  at::Tensor weighted;  // [P, T, V]
  at::Tensor total;     // [P, T, 1]
  at::Tensor top;       // [P, T, 1]; -infinity where the window is empty
  at::Tensor spoiled;  // [P, T, 1] bool: reads what is not finite; or undefined
};

class Reformer {
 public:
  Reformer(const ReformerPlan& plan, const at::Tensor& queries,
           const at::Tensor& values)
      : plan_(plan),
        planes_(queries.size(0) * queries.size(2)),
        seq_len_(queries.size(1)),
        windows_(plan, seq_len_, ComputeType(queries)),
        chunk_(windows_.chunk()),
        chunks_(windows_.chunks()),
        queries_(ByPlane(ReformerQueries(queries, plan.kept))),
        values_(ByPlane(Skip(values, plan.kept))) {
    SetNotFiniteAside();
    plane_ = at::arange(planes_, queries.options().dtype(at::kLong))
                 .view({planes_, 1, 1});
  }

  /// [P, T, V].
  at::Tensor Run() {
    const ReformerOptions& o = plan_.options;
    std::vector<RoundSums> rounds;
    for (int64_t r = 0; r < o.rounds; ++r) rounds.push_back(Round(r));
    const at::Tensor out = o.compat ? Mean(rounds) : Union(rounds);
    if (!not_finite_.defined()) return out;
    at::Tensor spoiled = rounds[0].spoiled;
    for (const RoundSums& round : rounds) {
      spoiled = spoiled.logical_or(round.spoiled);
    }
    return SpoilRows(out, queries_, spoiled);
  }

 private:
  // NaN and infinity become 0, so that no product with a weight of 0 brings
  // them to a row that may not read them; rows that may are made NaN at the
  // end.
  void SetNotFiniteAside() {
    const at::Tensor query = NotFiniteRows(queries_);
    const at::Tensor value = NotFiniteRows(values_);
    if (query.any().item<bool>() || value.any().item<bool>()) {
      not_finite_query_ = query.squeeze(2);
      not_finite_ = query.logical_or(value).squeeze(2);
      queries_ = FiniteOrZero(queries_);
      values_ = FiniteOrZero(values_);
    }
    keys_ = UnitVectors(queries_);
  }

  // [P, T, 1]: whether a query, or a position it reads, is not finite.
  at::Tensor Spoiled(const ReformerWindow& w) const {
    const at::Tensor pairs =
        Look(not_finite_, w.keys)
            .unsqueeze(2)
            .logical_or(Look(not_finite_query_, w.own).unsqueeze(3));
    return ByPosition(w, (w.bias > -kInfinity)
                             .view(pairs.sizes())
                             .logical_and(pairs)
                             .any(-1, true));
  }

  // One softmax over what all rounds read: [P, T, V].
  static at::Tensor Union(const std::vector<RoundSums>& rounds) {
    at::Tensor top = rounds[0].top;
    for (const RoundSums& round : rounds) top = at::maximum(top, round.top);
    top = at::where(top.isfinite(), top, Zero(top));
    at::Tensor weighted, total;
    for (const RoundSums& round : rounds) {
      const at::Tensor factor = (round.top - top).exp();
      const at::Tensor w = round.weighted * factor, t = round.total * factor;
      weighted = weighted.defined() ? weighted + w : w;
      total = total.defined() ? total + t : t;
    }
    return Divide(weighted, total);
  }

  // [B, T, H, X] -> [P, T, X].
  at::Tensor ByPlane(const at::Tensor& x) const {
    return x.transpose(1, 2).reshape({planes_, seq_len_, x.size(3)});
  }

  static at::Tensor Divide(const at::Tensor& weighted,
                           const at::Tensor& total) {
    const at::Tensor none = total == 0;
    return (weighted / total.masked_fill(none, 1.0)).masked_fill(none, 0.0);
  }

  at::Tensor Mean(const std::vector<RoundSums>& rounds) const {
    at::Tensor sum;
    for (const RoundSums& round : rounds) {
      const at::Tensor out = Divide(round.weighted, round.total);
      sum = sum.defined() ? sum + out : out;
    }
    return sum / static_cast<double>(rounds.size());
  }

  // table [P, T] at positions [P, ...]; a missing one (-1) reads position 0.
  at::Tensor Look(const at::Tensor& table, const at::Tensor& positions) const {
    return table.gather(1, positions.clamp_min(0).reshape({planes_, -1}))
        .view(positions.sizes());
  }

  // x [P, C, s, ...] by place -> [P, T, ...] by position.
  at::Tensor ByPosition(const ReformerWindow& w, const at::Tensor& x) const {
    const at::Tensor rows = x.reshape({planes_, chunks_ * chunk_, x.size(-1)});
    return rows.gather(
        1, w.place.unsqueeze(2).expand({planes_, seq_len_, x.size(-1)}));
  }

  at::Tensor Rows(const at::Tensor& x, const at::Tensor& positions) const {
    const at::Tensor rows = (positions.clamp_min(0) + plane_ * seq_len_);
    return x.reshape({planes_ * seq_len_, x.size(2)})
        .index_select(0, rows.reshape({-1}))
        .view({planes_ * chunks_, positions.size(2), x.size(2)});
  }

  RoundSums Round(int64_t r) const {
    const ReformerWindow w = windows_.Make(r);
    // In place: nothing needs the scores again, and their pages are warm.
    at::Tensor weights = at::bmm(Rows(queries_ * plan_.softmax_temp, w.own),
                                 Rows(keys_, w.keys).transpose(1, 2))
                             .add_(w.bias);
    // A shift of all scores of a row cancels: it takes no part in the gradient.
    const at::Tensor top = weights.detach().amax(-1, /*keepdim=*/true);
    weights.sub_(at::where(top.isfinite(), top, Zero(top))).exp_();
    RoundSums sums;
    if (not_finite_.defined()) sums.spoiled = Spoiled(w);
    sums.total = ByPosition(w, weights.sum(-1, /*keepdim=*/true));
    sums.top = ByPosition(w, top);
    sums.weighted =
        ByPosition(w, at::bmm(Drop(weights, r), Rows(values_, w.keys)));
    return sums;
  }

  // Every round draws its own mask.
  at::Tensor Drop(const at::Tensor& weights, int64_t r) const {
    const Dropout& dropout = plan_.options.dropout;
    if (dropout.probability == 0.0) return weights;
    return ComposedDropout(weights, dropout.probability, *dropout.seed + r);
  }

  const ReformerPlan& plan_;
  int64_t planes_, seq_len_;
  ReformerWindows windows_;
  int64_t chunk_, chunks_;
  at::Tensor queries_, keys_, values_;        // [P, T, K or V]
  at::Tensor plane_;                          // [P, 1, 1]
  at::Tensor not_finite_query_, not_finite_;  // [P, T] bool, or undefined
};

}  // namespace

at::Tensor ReformerQueries(const at::Tensor& queries, const at::Tensor& kept) {
  const at::Tensor wide = queries.to(ComputeType(queries));
  if (!kept.defined()) return wide;
  const at::Tensor usable =
      kept.unsqueeze(2).unsqueeze(3).logical_or(wide.isfinite());
  return at::where(usable, wide, Zero(wide));
}

at::Tensor ComputeReformer(const ReformerPlan& plan, const at::Tensor& queries,
                           const at::Tensor& values) {
  const int64_t batch = queries.size(0), seq_len = queries.size(1);
  const int64_t heads = queries.size(2), d_value = values.size(3);
  if (batch == 0 || seq_len == 0) {
    return at::zeros({batch, seq_len, heads, d_value},
                     queries.options().dtype(ComputeType(queries)));
  }
  return Reformer(plan, queries, values)
      .Run()
      .view({batch, heads, seq_len, d_value})
      .transpose(1, 2);
}

}  // namespace tarn::ops
