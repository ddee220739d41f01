#include "pytorch/ops_reformer_compute.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "pytorch/ops_executor.h"
#include "pytorch/ops_layers_call.h"
#include "pytorch/ops_sparse_call.h"

namespace tarn::ops {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

at::Tensor Zero(const at::Tensor& like) {
  return at::zeros({}, like.options());
}

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

// The window of one round: what each chunk of positions is compared with.
// P planes (sequence and head), C chunks of s places, W = 2 s or, with one
// chunk, s.
struct Window {
  at::Tensor own;      // [P, C, s] positions; -1 beyond the last
  at::Tensor keys;     // [P, C, W] positions; -1 where there is none
  at::Tensor allowed;  // [P, C, s, W] bool
  at::Tensor place;    // [P, T] of each position among [C s]
};

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
        heads_(queries.size(2)),
        seq_len_(queries.size(1)),
        chunk_(std::min(plan.options.chunk_size, seq_len_)),
        chunks_((seq_len_ + chunk_ - 1) / chunk_),
        queries_(ByPlane(ReformerQueries(queries, plan.kept))),
        values_(ByPlane(Skip(values, plan.kept))) {
    SetNotFiniteAside();
    const BucketOrder order = SortByBucket(plan.buckets, plan.kept);
    const auto flat = [&](const at::Tensor& x) {
      return x.reshape({planes_, plan.options.rounds, seq_len_});
    };
    position_ = flat(order.position);
    place_ = flat(order.place);
    buckets_ = flat(plan.buckets);
    plane_ = at::arange(planes_, position_.options()).view({planes_, 1, 1});
  }

  /// [P, T, V].
  at::Tensor Run() {
    const ReformerOptions& o = plan_.options;
    if (o.masked && !o.compat) FindOthers();
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
  at::Tensor Spoiled(const Window& w) const {
    const at::Tensor pairs =
        Look(not_finite_, w.keys)
            .unsqueeze(2)
            .logical_or(Look(not_finite_query_, w.own).unsqueeze(3));
    return ByPosition(w, w.allowed.logical_and(pairs).any(-1, true));
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

  Window MakeWindow(int64_t r) const {
    Window w;
    w.place = place_.select(1, r);
    w.own = at::cat({position_.select(1, r),
                     at::full({planes_, chunks_ * chunk_ - seq_len_}, -1,
                              position_.options())},
                    1)
                .view({planes_, chunks_, chunk_});
    w.keys = w.own;
    if (chunks_ > 1) {
      const at::Tensor before =
          at::cat({at::full({planes_, 1, chunk_}, -1, w.own.options()),
                   w.own.slice(1, 0, chunks_ - 1)},
                  1);
      w.keys = at::cat({before, w.own}, 2);
    }
    const at::Tensor i = w.own.unsqueeze(3), j = w.keys.unsqueeze(2);
    w.allowed = (j >= 0).logical_and(i >= 0);
    if (plan_.kept.defined()) {
      const at::Tensor kept = plan_.kept.repeat_interleave(heads_, 0);
      w.allowed = w.allowed.logical_and(Look(kept, w.keys).unsqueeze(2));
    }
    if (plan_.causal) {
      w.allowed = w.allowed.logical_and(j <= i + plan_.causal_offset);
    }
    if (plan_.options.same_bucket) {
      w.allowed = w.allowed.logical_and(SameBucket(w, r));
    }
    if (plan_.attention_mask.defined()) {
      w.allowed = w.allowed.logical_and(MaskAt(i, j));
    }
    return w;
  }

  at::Tensor SameBucket(const Window& w, int64_t r) const {
    const at::Tensor bucket = buckets_.select(1, r);
    return Look(bucket, w.own).unsqueeze(3) ==
           Look(bucket, w.keys).unsqueeze(2);
  }

  // The caller's mask at pairs of positions; an axis of size 1 serves all.
  at::Tensor MaskAt(const at::Tensor& i, const at::Tensor& j) const {
    at::Tensor mask = plan_.attention_mask;
    while (mask.dim() < 4) mask = mask.unsqueeze(0);
    const at::Tensor plane = plane_.unsqueeze(3);
    const at::Tensor axes[] = {plane.floor_divide(heads_),
                               plane.remainder(heads_), i.clamp_min(0),
                               j.clamp_min(0)};
    c10::List<std::optional<at::Tensor>> index;
    for (int64_t axis = 0; axis < 4; ++axis) {
      index.push_back(mask.size(axis) == 1 ? axes[axis] * 0 : axes[axis]);
    }
    return at::index(mask, index);
  }

  // [P, C, s, W]: N_ij, the number of rounds whose window of i holds j.
  at::Tensor Rounds(const Window& w) const {
    at::Tensor count;
    for (int64_t r = 0; r < plan_.options.rounds; ++r) {
      const at::Tensor chunk = place_.select(1, r).floor_divide(chunk_);
      const at::Tensor ahead =
          Look(chunk, w.own).unsqueeze(3) - Look(chunk, w.keys).unsqueeze(2);
      at::Tensor holds = (ahead == 0).logical_or(ahead == 1);
      if (plan_.options.same_bucket) {
        holds = holds.logical_and(SameBucket(w, r));
      }
      const at::Tensor one = holds.to(queries_.scalar_type());
      count = count.defined() ? count + one : one;
    }
    return count.clamp_min(1.0);  // 0 only where nothing is allowed
  }

  static at::Tensor NotSelf(const Window& w) {
    return w.keys.unsqueeze(2) != w.own.unsqueeze(3);
  }

  // x [P, C, s, ...] by place -> [P, T, ...] by position.
  at::Tensor ByPosition(const Window& w, const at::Tensor& x) const {
    const at::Tensor rows = x.reshape({planes_, chunks_ * chunk_, x.size(-1)});
    return rows.gather(
        1, w.place.unsqueeze(2).expand({planes_, seq_len_, x.size(-1)}));
  }

  // `others_` [P, T]: whether any round lets i read something beside itself.
  void FindOthers() {
    for (int64_t r = 0; r < plan_.options.rounds; ++r) {
      const Window w = MakeWindow(r);
      const at::Tensor found =
          ByPosition(w, w.allowed.logical_and(NotSelf(w)).any(-1, true))
              .squeeze(2);
      others_ = others_.defined() ? others_.logical_or(found) : found;
    }
  }

  void LeaveSelfOut(Window* w) const {
    const at::Tensor not_self = NotSelf(*w);
    const at::Tensor others =
        plan_.options.compat
            ? w->allowed.logical_and(not_self).any(-1, /*keepdim=*/true)
            : Look(others_, w->own).unsqueeze(3);
    w->allowed =
        w->allowed.logical_and(not_self.logical_or(others.logical_not()));
  }

  at::Tensor Rows(const at::Tensor& x, const at::Tensor& positions) const {
    const at::Tensor rows = (positions.clamp_min(0) + plane_ * seq_len_);
    return x.reshape({planes_ * seq_len_, x.size(2)})
        .index_select(0, rows.reshape({-1}))
        .view({planes_ * chunks_, positions.size(2), x.size(2)});
  }

  RoundSums Round(int64_t r) const {
    Window w = MakeWindow(r);
    if (plan_.options.masked) LeaveSelfOut(&w);
    const at::Tensor scores =
        at::bmm(Rows(queries_ * plan_.softmax_temp, w.own),
                Rows(keys_, w.keys).transpose(1, 2))
            .view(w.allowed.sizes())
            .masked_fill(w.allowed.logical_not(), -kInfinity);
    // A shift of all scores of a row cancels: it takes no part in the gradient.
    const at::Tensor top = scores.detach().amax(-1, /*keepdim=*/true);
    at::Tensor weights =
        (scores - at::where(top.isfinite(), top, Zero(top))).exp();
    if (!plan_.options.compat && plan_.options.rounds > 1) {
      weights = weights / Rounds(w);
    }
    RoundSums sums;
    if (not_finite_.defined()) sums.spoiled = Spoiled(w);
    sums.total = ByPosition(w, weights.sum(-1, /*keepdim=*/true));
    sums.top = ByPosition(w, top);
    const at::Tensor dropped = Drop(weights, r);
    sums.weighted =
        ByPosition(w, at::bmm(dropped.reshape({planes_ * chunks_, chunk_, -1}),
                              Rows(values_, w.keys))
                          .view({planes_, chunks_, chunk_, values_.size(2)}));
    return sums;
  }

  // Every round draws its own.
  at::Tensor Drop(const at::Tensor& weights, int64_t r) const {
    const Dropout& dropout = plan_.options.dropout;
    if (dropout.probability == 0.0) return weights;
    return ComposedDropout(weights, dropout.probability, *dropout.seed + r);
  }

  const ReformerPlan& plan_;
  int64_t planes_, heads_, seq_len_, chunk_, chunks_;
  at::Tensor queries_, keys_, values_;        // [P, T, K or V]
  at::Tensor position_, place_, buckets_;     // [P, rounds, T]
  at::Tensor plane_;                          // [P, 1, 1]
  at::Tensor others_;                         // [P, T]
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

BucketOrder SortByBucket(const at::Tensor& buckets, const at::Tensor& kept) {
  const int64_t heads = buckets.size(1), rounds = buckets.size(2);
  const int64_t seq_len = buckets.size(3);
  const auto options = buckets.options().dtype(at::kLong);
  const BucketOrder order = {at::empty(buckets.sizes(), options),
                             at::empty(buckets.sizes(), options)};
  const int32_t* bucket = buckets.const_data_ptr<int32_t>();
  int64_t* position = order.position.data_ptr<int64_t>();
  int64_t* place = order.place.data_ptr<int64_t>();
  TorchExecutor executor;
  executor.ParallelFor(buckets.size(0) * heads * rounds, [&](int64_t task,
                                                             int) {
    const int64_t row = task / (heads * rounds), begin = task * seq_len;
    const bool* keeps =
        kept.defined() ? kept.const_data_ptr<bool>() + row * seq_len : nullptr;
    // Equal buckets keep the order of positions, so this is a stable sort.
    const auto key = [&](int64_t t) {
      return keeps == nullptr || keeps[t] ? bucket[begin + t]
                                          : std::numeric_limits<int32_t>::max();
    };
    for (int64_t t = 0; t < seq_len; ++t) position[begin + t] = t;
    std::sort(position + begin, position + begin + seq_len,
              [&](int64_t a, int64_t b) {
                const int32_t x = key(a), y = key(b);
                return x < y || (x == y && a < b);
              });
    for (int64_t p = 0; p < seq_len; ++p)
      place[begin + position[begin + p]] = p;
  });
  return order;
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
