// Softmax attention from plain torch operators: what serves devices without
// kernels, float64 and gradients of gradients; the weights on request; exact
// top-k. Sizes may be symbolic, so that compilers can trace all but the blocks
// of top-k.
#include <ATen/TensorOperators.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "torch_ops/common/tensors.h"
#include "torch_ops/layers/call.h"
#include "torch_ops/softmax/call.h"

namespace tarn::ops {
namespace {

// [B, S, H, width] as [B, H, S, width], wide; rows of keys that are not kept
// are 0, so that NaN there meets no product.
at::Tensor HeadsFirst(const at::Tensor& rows, const at::Tensor& kept) {
  at::Tensor wide = Wide(rows);
  if (kept.defined()) {
    wide = at::where(kept.unsqueeze(-1).unsqueeze(-1), wide, Zero(wide));
  }
  return wide.transpose(1, 2);
}

at::Tensor FourAxes(at::Tensor plane) {
  while (plane.dim() < 4) plane = plane.unsqueeze(0);
  return plane;
}

// What a window leaves of a query's keys: low <= j - i < high.
struct KeyBand {
  c10::SymInt low, high;
};

// Of the window of local_context keys or, without one, of the last `window`.
KeyBand BandOf(const SoftmaxCall& call) {
  const c10::SymInt& c = call.local_context;
  if (c != 0) return {-(c / 2), (c + 1) / 2};
  const c10::SymInt& last = call.masks.causal_offset;
  return {last - call.options.window + 1, last + 1};
}

// Pairs inside a band: [1, 1, T, S].
at::Tensor Window(const SoftmaxCall& call, const KeyBand& band) {
  const auto range = [&](const at::Tensor& rows) {
    return at::arange(at::Scalar(rows.sym_size(1)),
                      rows.options().dtype(at::kLong));
  };
  const at::Tensor ahead = range(call.keys).unsqueeze(0) -
                           range(call.queries).unsqueeze(1);  // j - i
  return ahead.ge(at::Scalar(band.low))
      .logical_and(ahead.lt(at::Scalar(band.high)))
      .unsqueeze(0)
      .unsqueeze(0);
}

// Every allowed pair except those that a bias of -infinity hides.
at::Tensor Allowed(const SoftmaxCall& call) {
  at::Tensor allowed = AllowedPairs(call.masks, call.queries, call.keys);
  const auto also = [&](const at::Tensor& term) {
    allowed = allowed.defined() ? allowed.logical_and(term) : term;
  };
  if (call.local_context != 0) also(Window(call, BandOf(call)));
  if (call.options.window != 0) {
    SoftmaxCall last = call;
    last.local_context = 0;
    also(Window(call, BandOf(last)));
  }
  if (call.options.bias.has_value()) {
    also(FourAxes(*call.options.bias).ne(-INFINITY));
  }
  return allowed;
}

// softmax_temp q . k under the soft cap.
at::Tensor Capped(const SoftmaxCall& call, const at::Tensor& products) {
  const double cap = call.options.softcap;
  return cap == 0 ? products : cap * at::tanh(products / cap);
}

// softmax over the last axis where `allowed` (undefined: everywhere); rows
// without an allowed entry are 0. Both branches of each where stay finite, so
// that gradients of any order do. Scores are [..., H, T, S].
at::Tensor MaskedSoftmax(const SoftmaxCall& call, const at::Tensor& scores,
                         const at::Tensor& allowed) {
  if (scores.sym_size(-1) == 0) return scores;
  at::Tensor sinks;  // [H, 1, 1]
  if (call.options.sinks.has_value()) {
    sinks = call.options.sinks->to(scores.scalar_type()).view({-1, 1, 1});
  }
  at::Tensor seen = scores.detach();
  if (allowed.defined()) {
    seen = at::where(allowed, seen, Zero(seen).sub(INFINITY));
  }
  at::Tensor largest = at::amax(seen, {-1}, /*keepdim=*/true);
  if (sinks.defined()) largest = at::maximum(largest, sinks.detach());
  largest = at::where(largest == -INFINITY, Zero(largest), largest);
  at::Tensor shifted = scores - largest;
  if (allowed.defined()) {
    shifted = at::where(allowed, shifted, Zero(shifted));
  }
  at::Tensor weights = shifted.exp();
  if (allowed.defined()) {
    weights = at::where(allowed, weights, Zero(weights));
  }
  at::Tensor sum = weights.sum(-1, /*keepdim=*/true);
  if (sinks.defined()) sum = sum + (sinks - largest).exp();
  return weights / at::where(sum == 0, at::ones_like(sum), sum);
}

// softmax_temp q . k + bias of every pair, hidden ones included: [B, H, T, S].
at::Tensor Scores(const SoftmaxCall& call) {
  const at::Tensor kept = KeptKeys(call.masks, call.keys);
  const at::Tensor queries = HeadsFirst(call.queries, {});
  const at::Tensor keys = HeadsFirst(call.keys, kept);
  at::Tensor scores = Capped(
      call, at::matmul(queries, keys.transpose(-1, -2)) * call.temperature());
  if (call.options.bias.has_value()) {
    const at::Tensor bias =
        FourAxes(*call.options.bias).to(scores.scalar_type());
    scores = scores + at::where(bias == -INFINITY, Zero(bias), bias);
  }
  return scores;
}

// ---- A window of keys, in linear time.

// Whether the window's blocks serve the call: masks of pairs and dropout are
// laid out over all keys, and a block as wide as the sequence saves nothing.
bool FitsWindows(const SoftmaxCall& call) {
  if (call.masks.attention_mask.has_value() || call.options.bias.has_value() ||
      call.options.dropout.probability != 0.0) {
    return false;
  }
  const c10::SymInt half = call.keys.sym_size(1) / 2;
  if (call.options.window == 0) {
    return call.local_context != 0 && call.local_context < half;
  }
  // Both windows at once, and windows outside all keys, are rare.
  return call.local_context == 0 && call.options.window < half &&
         call.masks.causal_offset >= -call.queries.sym_size(1) &&
         call.masks.causal_offset <= call.keys.sym_size(1);
}

// Blocks of b queries against the b + c - 1 keys that any of them may read, c
// the width of the band: key place w of query a is w - a + band.low
// positions ahead of it.
at::Tensor WindowedSoftmax(const SoftmaxCall& call) {
  const KeyBand band = BandOf(call);
  const int64_t low = band.low.guard_int(__FILE__, __LINE__);
  const int64_t c = band.high.guard_int(__FILE__, __LINE__) - low;
  const int64_t block = std::max<int64_t>(c, 16), width = block + c - 1;
  const c10::SymInt tokens = call.queries.sym_size(1);
  const c10::SymInt keys = call.keys.sym_size(1);
  const c10::SymInt blocks = ((tokens + (block - 1)) / block).max(1);
  const c10::SymInt after = blocks * block + (c - 1 + low) - keys;
  // [B, S, ...] as [B, blocks, ..., width]; what is no key is 0.
  const auto windows = [&](const at::Tensor& x) {
    std::vector<c10::SymInt> pad(static_cast<size_t>(2 * (x.dim() - 2)), 0);
    pad.push_back(-low);
    pad.push_back(after);
    return at::constant_pad_nd_symint(x, pad, 0).unfold(1, width, block);
  };
  at::Tensor kept = KeptKeys(call.masks, call.keys);
  const at::Tensor k = windows(HeadsFirst(call.keys, kept).transpose(1, 2));
  const at::Tensor v = windows(HeadsFirst(call.values, kept).transpose(1, 2));
  const at::Tensor q =  // [B, blocks, H, b, K]
      at::constant_pad_nd_symint(Wide(call.queries),
                                 {0, 0, 0, 0, 0, blocks * block - tokens}, 0)
          .unflatten_symint(1, {blocks, block})
          .transpose(2, 3);
  const auto places = [&](int64_t end) {
    return at::arange(end, q.options().dtype(at::kLong));
  };
  const at::Tensor ahead =  // w - a
      places(width).unsqueeze(0) - places(block).unsqueeze(1);
  at::Tensor allowed = ahead.ge(0).logical_and(ahead.lt(c));
  if (call.masks.causal) {
    allowed = allowed.logical_and(
        ahead.le(at::Scalar(Reach(call.masks, tokens, keys) - low)));
  }
  if (!kept.defined()) {
    kept = at::ones_symint({1, keys}, q.options().dtype(at::kBool));
  }
  allowed = allowed.logical_and(windows(kept).unsqueeze(2).unsqueeze(3));
  const at::Tensor weights = MaskedSoftmax(
      call, Capped(call, at::matmul(q, k) * call.temperature()), allowed);
  return at::matmul(weights, v.transpose(-1, -2))
      .transpose(2, 3)
      .flatten(1, 2)
      .narrow_symint(1, 0, tokens)
      .contiguous()
      .to(call.values.scalar_type());
}

// Whether torch's own fused attention computes the call: on other devices than
// the CPU, where it would be a rival's kernel in place of tarn's definition.
bool ServedByTorch(const SoftmaxCall& call) {
  const AttentionMasks& masks = call.masks;
  if (call.queries.is_cpu() || call.queries.is_meta() || ComposedForced() ||
      HasTangent(call.queries) || HasTangent(call.keys) ||
      HasTangent(call.values) || call.local_context != 0 ||
      call.options.window != 0 || call.options.softcap != 0 ||
      call.options.sinks.has_value() || call.options.bias.has_value() ||
      call.options.dropout.probability != 0.0 ||
      masks.attention_mask.has_value() || masks.key_mask.has_value() ||
      masks.key_lengths.has_value()) {
    return false;
  }
  return !masks.causal || (masks.causal_offset == 0 &&
                           call.queries.sym_size(1) == call.keys.sym_size(1));
}

// ---- Exact top-k.

// Queries [first, first + count) of a call, which see the same keys.
SoftmaxCall QueriesOf(const SoftmaxCall& call, const c10::SymInt& first,
                      const c10::SymInt& count) {
  SoftmaxCall part = call;
  const auto rows = [&](OptionalTensor& plane) {
    if (!plane.has_value()) return;
    plane = FourAxes(*plane);
    if (plane->sym_size(2) != 1) {
      plane = plane->narrow_symint(2, first, count);
    }
  };
  part.queries = call.queries.narrow_symint(1, first, count);
  part.masks.causal_offset = call.masks.causal_offset + first;
  rows(part.masks.attention_mask);
  rows(part.options.bias);
  return part;
}

// The chosen rows of keys or values [B, S, H, width] as [B, H, T, k, width];
// 0 where nothing was chosen. `chosen` [B, H, T, k], `valid` its entries >= 0.
at::Tensor Chosen(const at::Tensor& rows, const at::Tensor& chosen,
                  const at::Tensor& valid) {
  const c10::SymInt batch = rows.sym_size(0), keys = rows.sym_size(1);
  const c10::SymInt heads = rows.sym_size(2), width = rows.sym_size(3);
  const auto range = [&](const c10::SymInt& n) {
    return at::arange(at::Scalar(n), chosen.options());
  };
  // Row (b, j, h) of [B S H, width].
  const at::Tensor index =
      (range(batch).view({-1, 1, 1, 1}) * at::Scalar(keys) +
       chosen.clamp_min(0)) *
          at::Scalar(heads) +
      range(heads).view({1, -1, 1, 1});
  const at::Tensor wide = Wide(rows);
  const at::Tensor taken = wide.reshape_symint({batch * keys * heads, width})
                               .index_select(0, index.flatten())
                               .view_symint({batch, heads, chosen.sym_size(2),
                                             chosen.sym_size(3), width});
  return at::where(valid.unsqueeze(-1), taken, Zero(taken));
}

// One block of queries: out [B, H, T, V] and weights [B, H, T, S] (undefined
// unless wanted). Sums over the chosen keys are running sums, whose order is
// the same for any number of empty places after them.
std::pair<at::Tensor, at::Tensor> TopkBlock(const SoftmaxCall& call,
                                            const at::Tensor& chosen,
                                            const at::Tensor& factors,
                                            bool need_weights) {
  const at::Tensor valid = chosen >= 0;
  const auto last = [](const at::Tensor& x, int64_t axis) {
    return x.cumsum(axis).narrow_symint(axis, x.sym_size(axis) - 1, 1);
  };
  const at::Tensor queries = HeadsFirst(call.queries, {}).unsqueeze(3);
  at::Tensor scores =
      (queries * Chosen(call.keys, chosen, valid)).sum(-1) * call.temperature();
  const at::Tensor places = chosen.clamp_min(0);
  if (call.options.bias.has_value()) {
    const at::Tensor bias =
        FourAxes(*call.options.bias)
            .to(scores.scalar_type())
            .expand_symint({call.queries.sym_size(0), call.queries.sym_size(2),
                            call.queries.sym_size(1), call.keys.sym_size(1)})
            .gather(-1, places);
    scores = scores + at::where(valid, bias, Zero(bias));
  }
  at::Tensor largest = at::amax(
      at::where(valid, scores.detach(), Zero(scores).sub(INFINITY)), {-1},
      /*keepdim=*/true);
  largest = at::where(largest == -INFINITY, Zero(largest), largest);
  const at::Tensor shifted =
      at::where(valid, scores - largest, Zero(scores)).exp();
  at::Tensor weights = at::where(valid, shifted, Zero(shifted));
  const at::Tensor sum = last(weights, -1);
  weights = weights / at::where(sum == 0, at::ones_like(sum), sum);
  at::Tensor dense;
  if (need_weights) {  // places without a key add 0 to position 0
    dense =
        at::zeros_symint({call.queries.sym_size(0), call.queries.sym_size(2),
                          call.queries.sym_size(1), call.keys.sym_size(1)},
                         weights.options())
            .scatter_add(-1, places, weights);
  }
  if (factors.defined()) weights = weights * factors;
  const at::Tensor values = Chosen(call.values, chosen, valid);
  return {last(weights.unsqueeze(-1) * values, -2).squeeze(-2), dense};
}

}  // namespace

at::Tensor ComposedSoftmaxWeights(const SoftmaxCall& call) {
  return MaskedSoftmax(call, Scores(call), Allowed(call));
}

at::Tensor ComposedTopkIndices(const SoftmaxCall& call,
                               const c10::SymInt& width) {
  const at::NoGradGuard no_grad;
  at::Tensor scores = Scores(call);
  scores = at::where(scores.isnan(), Zero(scores).add(INFINITY), scores);
  const at::Tensor allowed = Allowed(call);
  if (allowed.defined()) {
    scores = at::where(allowed, scores, Zero(scores).sub(INFINITY));
  }
  const auto [ordered, order] =
      at::sort(scores, /*stable=*/true, /*dim=*/-1, /*descending=*/true);
  const at::Tensor first = order.narrow_symint(-1, 0, width);
  const at::Tensor hidden = ordered.narrow_symint(-1, 0, width) == -INFINITY;
  // Ascending, with hidden ones last.
  const at::Tensor places = at::where(
      hidden, at::full_symint({}, call.keys.sym_size(1), first.options()),
      first);
  const at::Tensor sorted = std::get<0>(places.sort(-1));
  return at::where(sorted == at::Scalar(call.keys.sym_size(1)),
                   at::full({}, -1, first.options()), sorted);
}

TwoTensors ComposedExactTopk(const SoftmaxCall& call, int64_t topk,
                             bool need_weights) {
  const at::Tensor none = at::empty({0}, call.queries.options());
  if (call.keys.sym_size(1) == 0 || call.queries.sym_size(1) == 0) {
    const at::Tensor weights = ComposedSoftmaxWeights(call);
    return {ComposedSoftmaxOutput(call, weights),
            need_weights ? weights : none};
  }
  if (ShapesAlone(call.queries)) {
    const c10::SymInt batch = call.queries.sym_size(0),
                      tokens = call.queries.sym_size(1),
                      heads = call.queries.sym_size(2);
    const std::vector<std::optional<at::Tensor>> inputs = {
        call.queries, call.keys, call.values, call.options.bias};
    const auto shaped = [&](const std::vector<c10::SymInt>& sizes) {
      return ShapeOf(sizes, call.queries, call.queries.scalar_type(), inputs);
    };
    const at::Tensor out =
        shaped({batch, tokens, heads, call.values.sym_size(3)});
    if (!need_weights) return {out, none};
    return {out, shaped({batch, heads, tokens, call.keys.sym_size(1)})};
  }
  const c10::SymInt width = call.keys.sym_size(1).min(topk);
  // float32 in blocks that the kernel serves; the sums of a block are small.
  constexpr int64_t kBlock = 64;
  const int64_t queries =
      call.queries.sym_size(1).guard_int(__FILE__, __LINE__);
  at::Tensor factors;
  const Dropout& dropout = call.options.dropout;
  if (dropout.probability > 0) {
    factors = ComposedDropout(
        at::ones_symint(
            {call.queries.sym_size(0), call.queries.sym_size(2), queries,
             width},
            call.queries.options().dtype(ComputeType(call.queries))),
        dropout.probability, dropout.seed);
  }
  std::vector<at::Tensor> outs, weights;
  for (int64_t first = 0; first < queries; first += kBlock) {
    const int64_t count = std::min(kBlock, queries - first);
    const SoftmaxCall part = QueriesOf(call, first, count);
    const auto [out, dense] = TopkBlock(
        part, CallTopkIndices(part, width),
        factors.defined() ? factors.narrow(2, first, count) : at::Tensor(),
        need_weights);
    outs.push_back(out);
    if (need_weights) weights.push_back(dense);
  }
  const at::ScalarType dtype = call.queries.scalar_type();
  return {at::cat(outs, 2).transpose(1, 2).contiguous().to(dtype),
          need_weights ? at::cat(weights, 2).to(dtype) : none};
}

at::Tensor ComposedSoftmaxOutput(const SoftmaxCall& call,
                                 const at::Tensor& weights) {
  const at::Tensor values =
      HeadsFirst(call.values, KeptKeys(call.masks, call.keys));
  const Dropout& dropout = call.options.dropout;
  return at::matmul(ComposedDropout(weights, dropout.probability, dropout.seed),
                    values)
      .transpose(1, 2)
      .contiguous()
      .to(call.values.scalar_type());
}

TwoTensors ComposedSoftmax(const SoftmaxCall& call) {
  const at::Tensor none = at::empty({0}, call.queries.options());
  if (ServedByTorch(call)) {
    const auto heads_first = [](const at::Tensor& x) {
      return x.transpose(1, 2);
    };
    const at::Tensor out = at::scaled_dot_product_attention(
        heads_first(call.queries), heads_first(call.keys),
        heads_first(call.values), std::nullopt, 0.0, call.masks.causal,
        call.temperature());
    return {out.transpose(1, 2).contiguous(), none};
  }
  if (FitsWindows(call)) return {WindowedSoftmax(call), none};
  return {ComposedSoftmaxOutput(call, ComposedSoftmaxWeights(call)), none};
}

}  // namespace tarn::ops
