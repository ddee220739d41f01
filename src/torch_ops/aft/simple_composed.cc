// aft-simple from plain torch operators: any device, gradients of any order.
// What a query reads is the state after a prefix of the keys, and states
// combine: with m the larger of m_1 and m_2,
//   (m_1, a_1, b_1) + (m_2, a_2, b_2) =
//       (m, a_1 exp(m_1 - m) + a_2 exp(m_2 - m), b_1 exp(m_1 - m) + ...)
// so all prefixes come from rounds that combine each state with the one 1, 2,
// 4, ... places before: inside chunks of 32 keys, then over the chunks. No
// exponent is ever positive. O(S log 32) time. Sizes may be symbolic.
#include <ATen/TensorOperators.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <limits>
#include <vector>

#include "torch_ops/aft/simple_compute.h"
#include "torch_ops/common/tensors.h"
#include "torch_ops/softmax/call.h"
#include "torch_ops/sparse/call.h"

namespace tarn::ops {
namespace {

constexpr int64_t kChunk = 32;

// States along axis 1, and inside chunks along axis 2: [B, n, ..., H V].
struct States {
  at::Tensor m, a, b;

  template <typename F>
  States Each(const F& f) const {
    return {f(m, -kInfinity), f(a, 0.0), f(b, 0.0)};
  }
};

States Combine(const States& first, const States& second) {
  const at::Tensor m = at::maximum(first.m, second.m);
  const at::Tensor base = at::where(m == -kInfinity, Zero(m), m);
  const at::Tensor old = (first.m - base).exp();
  const at::Tensor added = (second.m - base).exp();
  return {m, first.a * old + second.a * added,
          first.b * old + second.b * added};
}

// The states `step` places before along an axis; empty ones at the front.
States Earlier(const States& states, int64_t axis, int64_t step) {
  return states.Each([&](const at::Tensor& x, double empty) {
    std::vector<c10::SymInt> pad(static_cast<size_t>(2 * (x.dim() - 1 - axis)),
                                 0);
    pad.push_back(step);
    pad.push_back(0);
    return at::constant_pad_nd_symint(
        x.narrow_symint(axis, 0, x.sym_size(axis) - step), pad, empty);
  });
}

// Every state combined with all before it along an axis.
States Through(States states, int64_t axis) {
  const c10::SymInt count = states.m.sym_size(axis);
  for (int64_t step = 1; count > step; step *= 2) {
    states = Combine(Earlier(states, axis, step), states);
  }
  return states;
}

// Prefixes of [B, S, R] keys, the empty one first: [B, S + 1, R].
States Prefixes(const States& keys, const States& initial) {
  const c10::SymInt count = keys.m.sym_size(1);
  const c10::SymInt chunks = ((count + (kChunk - 1)) / kChunk).max(1);
  const States chunked = keys.Each([&](const at::Tensor& x, double empty) {
    return at::constant_pad_nd_symint(x, {0, 0, 0, chunks * kChunk - count},
                                      empty)
        .unflatten_symint(1, {chunks, kChunk});
  });
  const States inside = Through(chunked, 2);
  const States before =
      Earlier(Through(inside.Each([](const at::Tensor& x, double) {
                return x.select(2, kChunk - 1);
              }),
                      1),
              1, 1);
  const States earlier =
      Combine(initial, before).Each([](const at::Tensor& x, double) {
        return x.unsqueeze(2);
      });
  const States all = Combine(earlier, inside);
  const auto with_initial = [&](const at::Tensor& first, const at::Tensor& x) {
    return at::cat({first, x.flatten(1, 2).narrow_symint(1, 0, count)}, 1);
  };
  return {with_initial(initial.m, all.m), with_initial(initial.a, all.a),
          with_initial(initial.b, all.b)};
}

// All keys combined at once: [B, 1, R].
States Whole(const States& keys, const States& initial) {
  if (keys.m.sym_size(1) == 0) return initial;
  const at::Tensor m = at::amax(keys.m, {1}, /*keepdim=*/true);
  const at::Tensor weights =
      (keys.m - at::where(m == -kInfinity, Zero(m), m)).exp();
  return Combine(initial, {m, (weights * keys.a).sum(1, /*keepdim=*/true),
                           (weights * keys.b).sum(1, /*keepdim=*/true)});
}

at::Tensor Averages(const States& states) {
  const at::Tensor none = states.b == 0;
  return at::where(
      none, Zero(states.a),
      states.a / at::where(none, at::ones_like(states.b), states.b));
}

}  // namespace

AftSimpleResults ComposedAftSimple(const AftSimpleCall& in) {
  const at::ScalarType type = ComputeType(in.queries);
  const at::Tensor q = in.queries.to(type).flatten(2);
  at::Tensor k = in.keys.to(type).flatten(2), v = in.values.to(type).flatten(2);
  AttentionMasks masks;
  masks.key_mask = in.key_mask;
  masks.key_lengths = in.key_lengths;
  const at::Tensor kept = KeptKeys(masks, in.keys);
  if (kept.defined()) {
    const at::Tensor rows = kept.unsqueeze(-1);
    k = at::where(rows, k, Zero(k).add(-kInfinity));
    v = at::where(rows, v, Zero(v));
  }
  const at::Tensor weightless = k == -kInfinity;
  const States keys = {k, at::where(weightless, Zero(v), v),
                       at::where(weightless, Zero(v), at::ones_like(v))};
  const std::vector<c10::SymInt> one = {q.sym_size(0), 1, q.sym_size(2)};
  States initial;
  if (in.m.has_value()) {
    initial = {in.m->flatten(1).unsqueeze(1), in.a->flatten(1).unsqueeze(1),
               in.b->flatten(1).unsqueeze(1)};
  } else {
    const at::Tensor zero = at::zeros_symint(one, q.options());
    initial = {zero.add(-kInfinity), zero, zero};
  }
  States last;
  at::Tensor averages;
  if (in.causal) {
    const States prefixes = Prefixes(keys, initial);
    last = prefixes.Each([](const at::Tensor& x, double) {
      return x.narrow_symint(1, x.sym_size(1) - 1, 1);
    });
    const c10::SymInt reach =
        in.causal_offset.max(-q.sym_size(1)).min(k.sym_size(1));
    const at::Tensor read =  // keys that each query reads
        (at::arange(at::Scalar(q.sym_size(1)), q.options().dtype(at::kLong)) +
         at::Scalar(reach + 1))
            .clamp(0, at::Scalar(k.sym_size(1)));
    averages = Averages(prefixes).index_select(1, read);
  } else {
    last = Whole(keys, initial);
    averages = Averages(last);
  }
  const at::Tensor out = at::sigmoid(q) * averages;
  const auto heads = [&](const at::Tensor& x) {
    return x.squeeze(1)
        .unflatten_symint(1, {in.queries.sym_size(2), in.queries.sym_size(3)})
        .contiguous();
  };
  // A padding query, which reads nothing, may be NaN: its output stays 0.
  return {at::where(averages == 0, Zero(out), out)
              .view_symint(in.queries.sym_sizes())
              .to(in.queries.scalar_type()),
          heads(last.m), heads(last.a), heads(last.b)};
}

}  // namespace tarn::ops
